//! A configuration as it stands in its files: the main one, and the clients' file that it may name.
//!
//! Read in two steps, [`MainFile`] then [`Source`], so that whoever follows the files can look at the second before it is read.

use super::clients_file::ClientsFile;
use super::diagnostic::{Diagnostic, Path, Problem, Segment};
use super::document::{Document, Parsed};
use super::substitution::Values;
use super::{Client, Config};

/// The main file, read.
#[derive(Debug)]
pub struct MainFile {
    document: Document,
    parsed: Parsed,
}

/// All files, read.
#[derive(Debug)]
pub struct Source {
    main: MainFile,
    clients: Clients,
}

#[derive(Debug)]
enum Clients {
    None,
    File(ClientsFile),
    /// Nothing can be said about single clients.
    Unread(Vec<Diagnostic>),
}

/// Where a client stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In `clients`.
    Inline(usize),
    /// In the clients' file.
    InFile(usize),
}

impl MainFile {
    /// Reads and parses the file; `env` answers for `${NAME}`.
    ///
    /// # Errors
    /// When nothing can be said about single keys.
    pub fn read(path: &std::path::Path, env: &dyn Fn(&str) -> Option<String>) -> Result<Self, Vec<Diagnostic>> {
        Self::parse(Document::read(path).map_err(|diagnostic| vec![diagnostic])?, env)
    }

    /// The same for a text.
    ///
    /// # Errors
    /// Likewise.
    pub fn parse(document: Document, env: &dyn Fn(&str) -> Option<String>) -> Result<Self, Vec<Diagnostic>> {
        let parsed = document.parse(env)?;
        Ok(Self { document, parsed })
    }

    /// The clients' file, if it names one.
    #[must_use]
    pub fn clients_file(&self) -> Option<&str> {
        self.parsed.config.as_ref()?.clients_file.as_deref()
    }

    /// Reads the other file too.
    #[must_use]
    pub fn with_clients(self, env: &dyn Fn(&str) -> Option<String>) -> Source {
        let clients = match self.clients_file().map(|path| ClientsFile::read(path, env)) {
            None => Clients::None,
            Some(Ok(file)) => Clients::File(file),
            Some(Err(diagnostics)) => Clients::Unread(diagnostics),
        };
        Source { main: self, clients }
    }
}

impl Source {
    /// What remains of the main file when everything that was wrong is taken out.
    #[must_use]
    pub fn config(&self) -> Option<&Config> {
        self.main.parsed.config.as_ref()
    }

    /// Clients of both files.
    pub fn clients(&self) -> impl Iterator<Item = (Place, &Client)> {
        let inline = self.config().into_iter().flat_map(|config| &config.clients).enumerate();
        let file = match &self.clients {
            Clients::File(file) => file.clients.as_slice(),
            _ => &[],
        };
        inline
            .map(|(i, client)| (Place::Inline(i), client))
            .chain(file.iter().map(|(place, client)| (Place::InFile(*place), client)))
    }

    /// Whether something below this top-level key was taken out, so that references into it may dangle for no other reason.
    #[must_use]
    pub fn is_incomplete(&self, key: &str) -> bool {
        let lacks_clients = match &self.clients {
            Clients::None => self.main.parsed.is_incomplete("clients_file"),
            Clients::File(file) => !file.problems.is_empty(),
            Clients::Unread(_) => true,
        };
        self.main.parsed.is_incomplete(key) || (key == "clients" && lacks_clients)
    }

    /// What was wrong already, and `found` later, each with its place in its file; nothing if nothing is wrong.
    #[must_use]
    pub fn diagnose(&self, found: Vec<Problem>) -> Vec<Diagnostic> {
        let mut main = self.main.parsed.problems.clone();
        let mut diagnostics = match &self.clients {
            Clients::Unread(diagnostics) => diagnostics.clone(),
            _ => Vec::new(),
        };
        let mut in_file = Vec::new();
        for problem in found {
            match (split(&problem.path), &self.clients) {
                (Some((place, inner)), Clients::File(file)) => {
                    in_file.push(Problem { path: file.original(place, &inner), ..problem });
                }
                _ => main.push(Problem { path: self.main.parsed.original(&problem.path), ..problem }),
            }
        }
        let mut located = located(&self.main.document, main, &self.main.parsed.values);
        if let Clients::File(file) = &self.clients {
            located.extend(self::located(&file.document, file.problems.iter().cloned().chain(in_file).collect(), &file.values));
        }
        located.append(&mut diagnostics);
        located
    }
}

/// The place in the clients' file, and the path from there.
fn split(path: &Path) -> Option<(usize, Path)> {
    match path.0.as_slice() {
        [Segment::Key(key), Segment::Index(place), inner @ ..] if key == CLIENTS_FILE => Some((*place, Path(inner.to_vec()))),
        _ => None,
    }
}

/// The first of a file's problems; how many more there are is the last.
fn located(document: &Document, mut problems: Vec<Problem>, values: &Values) -> Vec<Diagnostic> {
    let more = problems.len().saturating_sub(MAX_SHOWN);
    problems.truncate(MAX_SHOWN);
    for problem in &mut problems {
        problem.message = values.named(&problem.message);
        problem.hint = problem.hint.as_deref().map(|hint| values.named(hint));
    }
    let mut diagnostics = document.locate(&problems);
    if more > 0 {
        diagnostics.push(Diagnostic::of_file(&document.name, format!("and {more} more problems")));
    }
    diagnostics
}

impl Place {
    /// The path that problems with this client are told with.
    #[must_use]
    pub fn path(self) -> Path {
        match self {
            Self::Inline(place) => Path::root("clients").index(place),
            Self::InFile(place) => Path::root(CLIENTS_FILE).index(place),
        }
    }
}

const CLIENTS_FILE: &str = "clients_file";
/// More than anybody reads at once.
const MAX_SHOWN: usize = 200;
