//! The pictures of `docs/limits.md`: what the algorithms make of the same requests, drawn from the algorithms themselves.
//!
//! A file that differs from what is drawn here is a failed test. `TOLLGATE_BLESS=1` writes the files instead.

mod simulation;
mod svg;

use std::fs;
use std::path::Path;
use std::time::Duration;

use tollgate::limit::{Algorithm, Quota};

use crate::harness::Table;
use simulation::{Run, run};
use svg::draw;

#[test]
fn the_pictures_are_what_the_algorithms_do() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/pictures");
    let bless = std::env::var_os("TOLLGATE_BLESS").is_some();
    let mut table = Table::new("docs/pictures");
    for (name, picture) in pictures() {
        let file = folder.join(format!("{name}.svg"));
        if bless {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&file, &picture).unwrap();
        }
        let differs = fs::read_to_string(&file).ok() != Some(picture);
        table.row(
            &format!("{name}.svg"),
            if differs { "is not what the algorithms do now; TOLLGATE_BLESS=1 draws it anew" } else { "" },
        );
    }
}

/// Each algorithm by itself, and all under each other.
fn pictures() -> Vec<(&'static str, String)> {
    let runs: Vec<(Subject, Run)> = SUBJECTS.iter().map(|subject| (*subject, run(subject.quota()))).collect();
    let mut pictures: Vec<(&str, String)> = runs
        .iter()
        .map(|(subject, run)| (subject.name, draw(&format!("{} counts {RATE}", subject.name), &[(subject.heading, run)])))
        .collect();
    let rows: Vec<(&str, &Run)> = runs.iter().map(|(subject, run)| (subject.heading, run)).collect();
    pictures.push(("comparison", draw(&format!("Six algorithms count {RATE}"), &rows)));
    pictures
}

/// An algorithm to draw.
#[derive(Clone, Copy)]
struct Subject {
    name: &'static str,
    heading: &'static str,
    algorithm: Algorithm,
    delay: Option<Duration>,
}

impl Subject {
    fn quota(&self) -> Quota {
        let quota = Quota::new(5, Duration::from_secs(10), None, self.algorithm).unwrap();
        self.delay.map_or(quota, |max| quota.delaying(max, 100).unwrap())
    }
}

const RATE: &str = "5 requests per 10 s";

#[rustfmt::skip]
const SUBJECTS: [Subject; 6] = [
    Subject { name: "gcra", heading: "gcra", algorithm: Algorithm::Gcra, delay: None },
    Subject { name: "token_bucket", heading: "token_bucket", algorithm: Algorithm::TokenBucket, delay: None },
    Subject { name: "leaky_bucket", heading: "leaky_bucket, over: delay up to 4 s", algorithm: Algorithm::LeakyBucket, delay: Some(Duration::from_secs(4)) },
    Subject { name: "fixed_window", heading: "fixed_window", algorithm: Algorithm::FixedWindow, delay: None },
    Subject { name: "sliding_window", heading: "sliding_window", algorithm: Algorithm::SlidingWindow, delay: None },
    Subject { name: "sliding_log", heading: "sliding_log", algorithm: Algorithm::SlidingLog, delay: None },
];
