//! The command line: what it prints, how it exits, and that no file can hang it.

mod check;
mod hostile_files;
mod tools;
