//! Files made to hurt: each ends within a second, with an exit code and a line that says why.

use crate::harness::{Table, run};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

const GOOD: &str = "listeners: [{ name: public, address: 127.0.0.1:0 }]
routes: [{ name: all, match: { path: '/{*rest}' }, respond: { status: 200 } }]
";

fn alias_bomb() -> String {
    let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for i in 1..12 {
        let list = vec![format!("*a{}", i - 1); 10].join(", ");
        text += &format!("a{i}: &a{i} [{list}]\n");
    }
    text + "listeners: *a11\n"
}

/// Name and how the file is made; what is returned is the path to check.
type Maker = fn(&Path) -> PathBuf;

fn write(dir: &Path, bytes: impl AsRef<[u8]>) -> PathBuf {
    let file = dir.join("gateway.yaml");
    fs::write(&file, bytes).unwrap();
    file
}

#[rustfmt::skip]
const FILES: &[(&str, Maker)] = &[
    ("alias bomb", |dir| write(dir, alias_bomb())),
    ("merge-key bomb", |dir| write(dir, "a: &a { x: 1 }\nb: &b { <<: *a, <<: *a }\nc: { <<: *b, <<: *c }\n")),
    ("alias of itself", |dir| write(dir, "listeners: &a [*a]\n")),
    ("nested lists", |dir| write(dir, format!("listeners: {}{}", "[".repeat(10_000), "]".repeat(10_000)))),
    ("nested maps", |dir| write(dir, format!("listeners: {}1{}", "{a: ".repeat(10_000), "}".repeat(10_000)))),
    ("nested by indentation", |dir| write(dir, (0..2_000).map(|i| format!("{}a:\n", " ".repeat(i))).collect::<String>())),
    ("open brackets", |dir| write(dir, "[".repeat(1_000_000))),
    ("100 MB, sparse", |dir| {
        let file = dir.join("gateway.yaml");
        File::create(&file).unwrap().set_len(100 << 20).unwrap();
        file
    }),
    ("3 MB of one scalar", |dir| write(dir, format!("listeners: \"{}\"", "x".repeat(3 << 20)))),
    ("3 MB of keys", |dir| write(dir, (0..200_000).map(|i| format!("key{i}: 1\n")).collect::<String>())),
    ("not UTF-8", |dir| write(dir, b"listeners: \xff\xfe\n")),
    ("UTF-16", |dir| write(dir, b"\xff\xfel\0i\0s\0t\0")),
    ("NUL bytes", |dir| write(dir, b"listeners\0: 1\n")),
    ("tabs", |dir| write(dir, "listeners:\n\t- name: a\n")),
    ("duplicate key", |dir| write(dir, format!("{GOOD}routes: []\n"))),
    ("two documents", |dir| write(dir, format!("{GOOD}---\n{GOOD}"))),
    ("half written", |dir| write(dir, "listeners: [{ name: public, addr")),
    ("half a string", |dir| write(dir, "listeners: \"")),
    ("empty", |dir| write(dir, "")),
    ("only a comment", |dir| write(dir, "# nothing\n")),
    ("a scalar", |dir| write(dir, "hello\n")),
    ("a list", |dir| write(dir, "- hello\n")),
    ("python tag", |dir| write(dir, "listeners: !!python/object/apply:os.system ['true']\n")),
    ("unknown anchor", |dir| write(dir, "listeners: *nowhere\n")),
    ("a directory", Path::to_path_buf),
    ("missing", |dir| dir.join("nowhere.yaml")),
    ("below a file", |dir| write(dir, GOOD).join("x")),
    ("a device that never ends", |_| PathBuf::from("/dev/zero")),
    ("a pipe that nobody writes to", |dir| {
        let pipe = dir.join("gateway.yaml");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        pipe
    }),
    ("a link to itself", |dir| {
        std::os::unix::fs::symlink("gateway.yaml", dir.join("gateway.yaml")).unwrap();
        dir.join("gateway.yaml")
    }),
];

#[test]
fn every_hostile_file_ends_within_a_second_and_says_why() {
    let mut table = Table::new("hostile files");
    for (name, make) in FILES {
        for (command, flag) in [("check", None), ("run", Some("--config"))] {
            let dir = tempfile::TempDir::new().unwrap();
            let file = make(dir.path());
            let args: Vec<&str> = [Some(command), flag, file.to_str()].into_iter().flatten().collect();
            // A second of the gateway's own; the rest is for a busy machine.
            let problem = match run(&args, b"", Duration::from_secs(3)) {
                None => "did not end".to_owned(),
                Some(output) if output.status.code().is_none() => format!("was killed: {}", output.status),
                Some(output) => {
                    let text = [output.stdout, output.stderr].concat();
                    let text = String::from_utf8_lossy(&text);
                    match output.status.code() {
                        Some(0) => "was accepted".into(),
                        Some(101) => format!("panicked: {text}"),
                        _ if text.trim().is_empty() => "no reason was given".into(),
                        _ if text.len() > 64 << 10 => format!("{} bytes of reasons", text.len()),
                        _ => String::new(),
                    }
                }
            };
            table.row(&format!("{name}, {command}"), problem);
        }
    }
}

#[test]
fn a_byte_order_mark_and_crlf_are_fine() {
    let dir = tempfile::TempDir::new().unwrap();
    for text in [format!("\u{feff}{GOOD}"), GOOD.replace('\n', "\r\n"), format!("\u{feff}{}", GOOD.replace('\n', "\r\n"))] {
        let file = write(dir.path(), text);
        let output = run(&["check", file.to_str().unwrap()], b"", Duration::from_secs(3)).expect("check ends");
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&[output.stdout, output.stderr].concat()));
    }
}
