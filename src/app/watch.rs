//! Notices that the file, or the clients' file that it names, or another one, has changed.
//!
//! By looking, several times a second, rather than by inotify: looking works on every file system and sees through
//! whatever way a file is replaced (rename over it, a symlink somewhere above it swapped as Kubernetes does it), because it asks the
//! same question a reload would: what is behind this path now? It costs a few system calls a look, off the request path.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Watches the main file and perhaps another one.
#[derive(Debug)]
pub(super) struct Watch {
    main: File,
    other: Option<File>,
}

#[derive(Debug)]
struct File {
    path: PathBuf,
    settled: Option<Seen>,
    last: Option<Seen>,
}

/// What tells one state of a file from another.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    real: PathBuf,
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Watch {
    /// From the file's present state.
    pub(super) fn new(path: &Path) -> Self {
        Self { main: File::new(path), other: None }
    }

    /// Watches this file too, instead of another that was. One that was watched already is as well known as it was.
    pub(super) fn follow(&mut self, other: Option<&Path>) {
        if self.other.as_ref().map(|file| file.path.as_path()) != other {
            self.other = other.map(File::new);
        }
    }

    /// Whether a file is another than at the last [`settle`](Self::settle) and has stopped changing: two looks in a row saw the
    /// same. So a burst of writes is one change, and a half-written file is not read while it is being written.
    pub(super) fn changed(&mut self) -> bool {
        changed(self.files())
    }

    /// Takes the present state as known.
    pub(super) fn settle(&mut self) {
        self.files().for_each(File::settle);
    }

    fn files(&mut self) -> impl Iterator<Item = &mut File> {
        std::iter::once(&mut self.main).chain(&mut self.other)
    }
}

/// Other files that are read together.
#[derive(Debug)]
pub(super) struct Files(Vec<File>);

impl Files {
    /// From their present state.
    pub(super) fn new(paths: Vec<PathBuf>) -> Self {
        Self(paths.iter().map(|path| File::new(path)).collect())
    }

    /// Whether one is another than at the last [`settle`](Self::settle), and none is changing.
    pub(super) fn changed(&mut self) -> bool {
        changed(self.0.iter_mut())
    }

    /// Takes what the last look saw as known. What has changed since is another change.
    pub(super) fn settle(&mut self) {
        for file in &mut self.0 {
            file.settled = file.last.clone();
        }
    }
}

fn changed<'f>(files: impl Iterator<Item = &'f mut File>) -> bool {
    let looks: Vec<_> = files.map(File::look).collect();
    looks.contains(&Look::New) && !looks.contains(&Look::Changing)
}

/// What a look at a file finds.
#[derive(Debug, PartialEq, Eq)]
enum Look {
    /// What is known.
    Known,
    /// Not what the last look saw.
    Changing,
    /// Something that stays.
    New,
}

impl File {
    fn new(path: &Path) -> Self {
        let seen = Seen::at(path);
        Self { path: path.to_owned(), settled: seen.clone(), last: seen }
    }

    fn settle(&mut self) {
        self.last = Seen::at(&self.path);
        self.settled = self.last.clone();
    }

    fn look(&mut self) -> Look {
        let now = Seen::at(&self.path);
        let stable = now == self.last;
        self.last = now;
        match stable {
            false => Look::Changing,
            true if self.last == self.settled => Look::Known,
            true => Look::New,
        }
    }
}

impl Seen {
    fn at(path: &Path) -> Option<Self> {
        let real = fs::canonicalize(path).ok()?;
        let meta = fs::metadata(&real).ok()?;
        Some(Self {
            real,
            device: meta.dev(),
            inode: meta.ino(),
            size: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_replace_a_file_is_one_change() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b, link) = (dir.path().join("a"), dir.path().join("b"), dir.path().join("link"));
        fs::write(&a, "1").unwrap();
        fs::write(&b, "2").unwrap();
        std::os::unix::fs::symlink(&a, &link).unwrap();
        let mut watch = Watch::new(&link);
        let changes = |watch: &mut Watch| {
            let seen = (0..3).filter(|_| watch.changed()).count();
            watch.settle();
            seen > 0
        };
        assert!(!changes(&mut watch));
        fs::write(&a, "12").unwrap();
        assert!(!watch.changed(), "the first look waits for it to settle");
        assert!(watch.changed());
        watch.settle();
        let swapped = dir.path().join("swapped");
        std::os::unix::fs::symlink(&b, &swapped).unwrap();
        fs::rename(&swapped, &link).unwrap();
        assert!(changes(&mut watch));
        fs::remove_file(&b).unwrap();
        assert!(changes(&mut watch));
        assert!(!changes(&mut watch));
    }
    #[test]
    fn the_other_file_is_followed_for_as_long_as_it_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let [main, a, b] = ["main", "a", "b"].map(|name| dir.path().join(name));
        for path in [&main, &a, &b] {
            fs::write(path, "1").unwrap();
        }
        let mut watch = Watch::new(&main);
        let changes = |watch: &mut Watch| {
            let seen = (0..3).filter(|_| watch.changed()).count();
            watch.settle();
            seen > 0
        };
        watch.follow(Some(&a));
        assert!(!changes(&mut watch));
        fs::write(&a, "12").unwrap();
        watch.follow(Some(&a));
        assert!(changes(&mut watch), "following it again does not make a change known");
        watch.follow(Some(&b));
        fs::write(&a, "123").unwrap();
        assert!(!changes(&mut watch));
        fs::write(&b, "12").unwrap();
        assert!(changes(&mut watch));
        watch.follow(None);
        fs::write(&b, "123").unwrap();
        assert!(!changes(&mut watch));
    }
}
