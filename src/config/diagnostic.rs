//! What is wrong with a file, and where: [`Problem`] names a place by its path; [`Diagnostic`] also by line and column.

use std::fmt;

/// A place in the file, such as `limits[2].rate`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Path(pub Vec<Segment>);

/// One step of a [`Path`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Segment {
    /// A key of a map.
    Key(String),
    /// An item of a list.
    Index(usize),
}

impl Path {
    /// The path of a top-level key.
    #[must_use]
    pub fn root(key: &str) -> Self {
        Self::default().key(key)
    }

    /// One step into a map.
    #[must_use]
    pub fn key(&self, key: &str) -> Self {
        self.with(Segment::Key(key.to_owned()))
    }

    /// One step into a list.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        self.with(Segment::Index(index))
    }

    fn with(&self, segment: Segment) -> Self {
        let mut path = self.clone();
        path.0.push(segment);
        path
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Key(key) if i == 0 => write!(f, "{key}")?,
                Segment::Key(key) => write!(f, ".{key}")?,
                Segment::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// Something wrong at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub path: Path,
    /// The key itself is wrong, not its value.
    pub at_key: bool,
    /// The value may be a secret that was put there by mistake.
    pub is_value_hidden: bool,
    /// What.
    pub message: String,
    /// What was probably meant.
    pub hint: Option<String>,
}

impl Problem {
    /// A problem with the value at `path`.
    pub fn new(path: Path, message: impl Into<String>) -> Self {
        Self { path, at_key: false, is_value_hidden: false, message: message.into(), hint: None }
    }

    /// With a suggestion.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// About the key rather than its value.
    #[must_use]
    pub fn at_key(mut self) -> Self {
        self.at_key = true;
        self
    }
}

/// A problem with its place in the text.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Diagnostic {
    /// The file as it was named.
    pub file: String,
    /// From 1; 0 when the problem is the file as a whole.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// Such as `limits[2].rate`; empty for the whole file.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// What was probably meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The line of the file, without its end.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub excerpt: String,
}

impl Diagnostic {
    /// About the file as a whole.
    pub fn of_file(file: &str, message: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            line: 0,
            column: 0,
            path: String::new(),
            message: message.into(),
            hint: None,
            excerpt: String::new(),
        }
    }

    /// The problem with the line of the file and a mark under the place.
    #[must_use]
    pub fn with_excerpt(&self) -> String {
        if self.excerpt.is_empty() {
            return self.to_string();
        }
        let number = self.line.to_string();
        let gutter = " ".repeat(number.len());
        let indent = " ".repeat(self.column.saturating_sub(1));
        format!("{self}\n {gutter} |\n {number} | {}\n {gutter} | {indent}^\n", self.excerpt)
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if self.line > 0 {
            write!(f, ":{}:{}", self.line, self.column)?;
        }
        if !self.path.is_empty() {
            write!(f, ": {}", self.path)?;
        }
        write!(f, ": {}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

/// `did you mean …?`, when one of `known` is close enough to `word`.
pub fn did_you_mean<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<String> {
    let closeness = |known: &&str| strsim::damerau_levenshtein(word, known);
    let best = known.into_iter().min_by_key(closeness)?;
    // A third of the letters may be wrong: `burts` finds `burst`, `x` finds nothing.
    (closeness(&best) * 3 <= best.len().max(3)).then(|| format!("did you mean `{best}`?"))
}
