//! The repository checks itself: the layers of the source, and that documentation and examples say what is true.

use crate::harness::{DEADLINE, Table, run};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Every module of the crate by layer, lowest first. A module names only modules of lower layers.
#[rustfmt::skip]
const LAYERS: &[&[&str]] = &[
    &["clock", "socket", "units"],
    &["telemetry", "limit", "request", "body", "config"],
    &["identity", "headers", "store", "tls", "websocket"],
    &["policy", "admission", "respond", "issuer"],
    &["snapshot"],
    &["compile", "discovery", "upstream"],
    &["proxy"],
    &["server", "admin"],
    &["app"],
    &["cli"],
];

/// What the layers would allow and an invariant forbids.
const NEVER: &[(&str, &str, &str)] = &[
    ("policy", "store", "policy emits charges, only admission answers them"),
    ("policy", "clock", "policy knows nothing of time"),
    ("identity", "limit", "identity knows no limits"),
    ("upstream", "store", "what is admitted is not decided there"),
];

#[test]
fn modules_name_lower_layers_only() {
    let mut table = Table::new("layers");
    let mut found = BTreeSet::new();
    for file in sources() {
        let module = module_of(&file);
        let Some(own) = module.first() else { continue };
        found.insert(own.clone());
        if layer(own).is_none() {
            table.row(&shown(&file, 1), format!("the module `{own}` has no layer yet; give it one in {}", file!()));
            continue;
        }
        for (line, other) in references(&read(&file), &module) {
            table.row(&shown(&file, line), objection(own, &other));
        }
    }
    for stale in LAYERS.iter().copied().flatten().filter(|module| !found.contains(**module)) {
        table.row(file!(), format!("LAYERS has `{stale}`, which is no module"));
    }
}

#[test]
fn the_references_of_a_source_are_found_wherever_they_stand() {
    let text = r##"
//! crate::comment
use crate::{one, two::{Deep, self}, three as drei};
/* crate::block /* crate::nested */ */
fn f<'a>(x: crate::four::X, c: char) -> &'a str { if c == '"' { "crate::text" } else { r#"crate::"raw" "# } }
use super::five;
mod tests { use super::*; use super::super::six; fn g() { crate::seven::f(); } }
use self::eight; use super::super::nine;
"##;
    let names = |module: &[&str]| {
        let module: Vec<String> = module.iter().map(ToString::to_string).collect();
        references(text, &module).into_iter().map(|(line, name)| format!("{line} {name}")).collect::<Vec<_>>()
    };
    // In a module of the first level `super` is the crate; two of them lead nowhere.
    assert_eq!(names(&["top"]), ["3 one", "3 two", "3 three", "5 four", "6 five", "7 six", "7 seven"]);
    assert_eq!(names(&["top", "below"]), ["3 one", "3 two", "3 three", "5 four", "7 seven", "8 nine"]);
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|modules| modules.contains(&module))
}

/// Why `own` may not name `other`; empty if it may.
fn objection(own: &str, other: &str) -> String {
    if own == other {
        return String::new();
    }
    if let Some((.., why)) = NEVER.iter().find(|(from, to, _)| (*from, *to) == (own, other)) {
        return format!("`{own}` names `{other}`, but {why}");
    }
    match (layer(own), layer(other)) {
        (Some(own_layer), Some(layer)) if layer >= own_layer => {
            format!("`{own}` (layer {own_layer}) names `{other}` (layer {layer}), which is not below it")
        }
        // Not a module: a macro or an item of the crate's root.
        _ => String::new(),
    }
}

/// `src/proxy/admit.rs` is `["proxy", "admit"]`; `lib.rs` and `main.rs` are the root, which is in no layer.
fn module_of(file: &Path) -> Vec<String> {
    let inside = file.strip_prefix(root().join("src")).unwrap().with_extension("");
    let mut module: Vec<String> = inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if module.last().is_some_and(|last| last == "mod") {
        module.pop();
    }
    if matches!(module.as_slice(), [only] if only == "lib" || only == "main") { Vec::new() } else { module }
}

/// The top-level modules that a source names through `crate::` or enough `super::`, with their lines.
fn references(text: &str, module: &[String]) -> Vec<(usize, String)> {
    let tokens = tokens(text);
    let word = |at: usize| tokens.get(at).map_or("", |(_, token)| token.as_str());
    let mut found = Vec::new();
    // How many blocks are open, and at which of them an inline module begins.
    let (mut depth, mut inline) = (0_usize, Vec::new());
    for (at, (_, token)) in tokens.iter().enumerate() {
        match token.as_str() {
            "{" => {
                depth += 1;
                if at >= 2 && word(at - 2) == "mod" {
                    inline.push(depth);
                }
            }
            "}" => {
                inline.retain(|begin| *begin != depth);
                depth = depth.saturating_sub(1);
            }
            "crate" if word(at + 1) == "::" => found.extend(named(&tokens, at + 2)),
            "super" if word(at + 1) == "::" && (at == 0 || word(at - 1) != "::") => {
                let up = (0..).take_while(|n| word(at + 2 * n) == "super").count();
                if up == module.len() + inline.len() {
                    found.extend(named(&tokens, at + 2 * up));
                }
            }
            _ => {}
        }
    }
    found
}

/// What stands behind `crate::`: one name, or the first names in a group.
fn named(tokens: &[(usize, String)], at: usize) -> Vec<(usize, String)> {
    match tokens.get(at) {
        Some((_, open)) if open == "{" => {
            let (mut depth, mut names, mut expected) = (0_usize, Vec::new(), true);
            for (line, token) in &tokens[at..] {
                match token.as_str() {
                    "{" => depth += 1,
                    "}" => depth -= 1,
                    "," => expected = depth == 1,
                    name if expected && depth == 1 => {
                        names.push((*line, name.to_owned()));
                        expected = false;
                    }
                    _ => {}
                }
                if depth == 0 {
                    break;
                }
            }
            names
        }
        Some((line, name)) => vec![(*line, name.clone())],
        None => Vec::new(),
    }
}

/// Words, `::` and single characters with their lines; comments and literals are left out.
fn tokens(text: &str) -> Vec<(usize, String)> {
    let chars: Vec<char> = text.chars().collect();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let (mut tokens, mut at, mut line) = (Vec::new(), 0, 1);
    while let Some(&c) = chars.get(at) {
        let rest = &chars[at..];
        let end = match rest {
            ['/', '/', ..] => rest.iter().position(|c| *c == '\n').unwrap_or(rest.len()),
            ['/', '*', ..] => block_comment(rest),
            ['r', '"' | '#', ..] if raw_string(rest).is_some() => raw_string(rest).unwrap(),
            ['"', ..] => quoted(rest, '"'),
            ['\'', '\\', ..] | ['\'', _, '\'', ..] => quoted(rest, '\''),
            [':', ':', ..] => 2,
            _ if is_word(c) => rest.iter().position(|c| !is_word(*c)).unwrap_or(rest.len()),
            _ => 1,
        };
        let token: String = rest[..end].iter().collect();
        let is_code = is_word(c) && !token.contains('"') || token == "::" || (end == 1 && !c.is_whitespace());
        if is_code {
            tokens.push((line, token.clone()));
        }
        line += token.matches('\n').count();
        at += end;
    }
    tokens
}

fn block_comment(rest: &[char]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        match &rest[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

/// The length of a raw string that begins here.
fn raw_string(rest: &[char]) -> Option<usize> {
    let hashes = rest[1..].iter().take_while(|c| **c == '#').count();
    (rest.get(1 + hashes) == Some(&'"')).then_some(())?;
    let end: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
    let body = 2 + hashes;
    let found = rest[body..].windows(end.len()).position(|window| *window == *end);
    Some(found.map_or(rest.len(), |found| body + found + end.len()))
}

fn quoted(rest: &[char], quote: char) -> usize {
    let mut at = 1;
    while let Some(&c) = rest.get(at) {
        at += if c == '\\' { 2 } else { 1 };
        if c == quote {
            return at;
        }
    }
    rest.len()
}

/// What completes a fragment, unless it has the section itself.
const REST: &[(&str, &str)] = &[
    ("listeners", "[{ name: public, address: 127.0.0.1:8080 }]"),
    ("routes", "[{ name: all, match: { path: '/{*rest}' }, upstream: api }]"),
    ("upstreams", "{ api: { endpoints: [http://127.0.0.1:9001] } }"),
];

#[test]
fn the_shipped_configuration_is_accepted() {
    assert_eq!(complaint(&root().join("gateway.yaml")), "");
}

/// A block that begins with `# fragment` is completed with [`REST`]; any other must be whole.
#[test]
fn configurations_in_the_documentation_are_accepted() {
    let dir = tempfile::TempDir::new().unwrap();
    let mut table = Table::new("configurations in the documentation");
    for file in documents().filter(|file| !file.starts_with(root().join("certs"))) {
        for (line, block) in blocks(&read(&file), "yaml") {
            let is_fragment = block.starts_with("# fragment");
            let problem = if !is_fragment && !block.lines().any(|line| line.starts_with("listeners:")) {
                "neither a whole configuration nor marked `# fragment` in its first line".to_owned()
            } else {
                let whole = if is_fragment { completed(&block) } else { block };
                let written = dir.path().join("gateway.yaml");
                fs::write(&written, whole).unwrap();
                complaint(&written)
            };
            table.row(&shown(&file, line), problem);
        }
    }
}

#[test]
fn the_schema_knows_every_section_of_the_shipped_configuration() {
    let output = run(&["schema"], b"", DEADLINE).expect("schema ends");
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut table = Table::new("sections of gateway.yaml in the schema");
    for (number, line) in (1..).zip(read(&root().join("gateway.yaml")).lines()) {
        if let Some(section) = section(line) {
            let known = schema["properties"][section].is_object();
            table.row(&format!("gateway.yaml:{number}"), if known { "" } else { "the schema does not have this section" });
        }
    }
}

/// What `tollgate check` says against a file; empty when it accepts it.
fn complaint(file: &Path) -> String {
    let output = run(&["check", file.to_str().unwrap()], b"", DEADLINE).expect("check ends");
    if output.status.success() {
        return String::new();
    }
    format!("exit {:?}\n{}", output.status.code(), String::from_utf8_lossy(&output.stderr))
}

fn completed(fragment: &str) -> String {
    let mut whole = fragment.to_owned();
    for (name, default) in REST {
        if !fragment.lines().any(|line| section(line) == Some(name)) {
            writeln!(whole, "{name}: {default}").unwrap();
        }
    }
    whole
}

/// The top-level key that a line begins.
fn section(line: &str) -> Option<&str> {
    let (name, _) = line.split_once(':')?;
    (!name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')).then_some(name)
}

#[test]
fn relative_links_lead_somewhere() {
    let mut table = Table::new("links");
    for file in documents() {
        for (line, target) in links(&read(&file)) {
            let (path, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let to = if path.is_empty() { file.clone() } else { file.parent().unwrap().join(path) };
            let problem = if !to.exists() {
                format!("{target} does not exist")
            } else if !anchor.is_empty() && !headings(&read(&to)).contains(anchor) {
                format!("{target}: no such heading")
            } else {
                String::new()
            };
            table.row(&shown(&file, line), problem);
        }
    }
}

#[test]
fn the_documented_metrics_are_the_metrics_there_are() {
    let documentation = root().join("docs/operating.md");
    let source = root().join("src/telemetry/metrics.rs");
    let names = |file: &Path, quote: char| -> BTreeSet<String> {
        let is_name = |word: &&str| word.starts_with("tollgate_") && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
        let code = read(file).split("#[cfg(test)]").next().unwrap_or_default().to_owned();
        code.split(quote).filter(is_name).map(str::to_owned).collect()
    };
    let (documented, existing) = (names(&documentation, '`'), names(&source, '"'));
    let mut table = Table::new("metrics");
    for name in documented.symmetric_difference(&existing) {
        let (file, problem) = if existing.contains(name) {
            (&source, "is not in docs/operating.md")
        } else {
            (&documentation, "is not in src/telemetry/metrics.rs")
        };
        table.row(&shown(file, line_of(&read(file), name)), format!("{name} {problem}"));
    }
    assert!(existing.len() > 10, "the table of metrics was not found");
}

#[test]
fn no_file_names_a_place_on_somebodys_machine() {
    let places: Vec<String> = ["work", "root", "home"].map(|folder| format!("/{folder}/")).into();
    let mut table = Table::new("machine paths");
    for file in files() {
        let text = String::from_utf8_lossy(&fs::read(&file).unwrap()).into_owned();
        for (number, line) in (1..).zip(text.lines()) {
            for place in places.iter().filter(|place| line.contains(place.as_str())) {
                table.row(&shown(&file, number), format!("contains {place}"));
            }
        }
    }
}

/// Contents of fenced blocks of a language, with the line of their first line.
fn blocks(markdown: &str, language: &str) -> Vec<(usize, String)> {
    let (mut blocks, mut open) = (Vec::new(), None::<(bool, usize, String)>);
    for (number, line) in (1..).zip(markdown.lines()) {
        match (line.strip_prefix("```"), open.take()) {
            (Some(_), Some((wanted, first, block))) => blocks.extend(wanted.then_some((first, block))),
            (Some(info), None) => open = Some((info.trim() == language, number + 1, String::new())),
            (None, Some((wanted, first, block))) => open = Some((wanted, first, format!("{block}{line}\n"))),
            (None, None) => {}
        }
    }
    blocks
}

/// Lines outside of fenced blocks, with their numbers.
fn prose(markdown: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    (1..).zip(markdown.lines()).filter(move |(_, line)| {
        let fence = line.starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// The targets of links that stay in the repository.
fn links(markdown: &str) -> Vec<(usize, String)> {
    let targets = prose(markdown).flat_map(|(number, line)| {
        line.split("](").skip(1).filter_map(move |rest| Some((number, rest.split_once(')')?.0.to_owned())))
    });
    targets.filter(|(_, target)| !target.contains("://") && !target.starts_with("mailto:")).collect()
}

/// The anchors of a document's headings, as GitHub makes them.
fn headings(markdown: &str) -> BTreeSet<String> {
    let titles = prose(markdown).filter_map(|(_, line)| line.strip_prefix('#').map(|rest| rest.trim_start_matches('#').trim()));
    let kept = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | ' ');
    titles.map(|title| title.to_lowercase().chars().filter(|c| kept(*c)).collect::<String>().replace(' ', "-")).collect()
}

fn line_of(text: &str, word: &str) -> usize {
    text.lines().position(|line| line.contains(word)).map_or(1, |index| index + 1)
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// What git has or would add, deleted files left out.
fn files() -> Vec<PathBuf> {
    let git = Command::new("git")
        .current_dir(root())
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output()
        .expect("git lists the repository's files");
    assert!(git.status.success(), "git ls-files: {}", String::from_utf8_lossy(&git.stderr));
    let names = String::from_utf8(git.stdout).unwrap();
    let files = names.split('\0').filter(|name| !name.is_empty()).map(|name| root().join(name));
    files.filter(|file| file.is_file()).collect()
}

fn with_extension(extension: &'static str) -> impl Iterator<Item = PathBuf> {
    files().into_iter().filter(move |file| file.extension().is_some_and(|found| found == extension))
}

fn documents() -> impl Iterator<Item = PathBuf> {
    with_extension("md")
}

fn sources() -> impl Iterator<Item = PathBuf> {
    with_extension("rs").filter(|file| file.starts_with(root().join("src")))
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// `docs/http.md:12`.
fn shown(file: &Path, line: usize) -> String {
    format!("{}:{line}", file.strip_prefix(root()).unwrap_or(file).display())
}
