//! Notices that the file has changed.
//!
//! By looking, several times a second, rather than by inotify: looking works on every file system and sees through
//! whatever way a file is replaced (rename over it, a symlink somewhere above it swapped as Kubernetes does it), because it asks the
//! same question a reload would: what is behind this path now? It costs a few system calls a look, off the request path.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Watches one path.
#[derive(Debug)]
pub(super) struct Watch {
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
        let seen = Seen::at(path);
        Self { path: path.to_owned(), settled: seen.clone(), last: seen }
    }

    /// Whether the file is another than at the last [`settle`](Self::settle) and has stopped changing: two looks in a row saw the
    /// same. So a burst of writes is one change, and a half-written file is not read while it is being written.
    pub(super) fn changed(&mut self) -> bool {
        let now = Seen::at(&self.path);
        let stable = now == self.last;
        self.last = now;
        stable && self.last != self.settled
    }

    /// Takes the present state as known.
    pub(super) fn settle(&mut self) {
        self.last = Seen::at(&self.path);
        self.settled = self.last.clone();
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
}
