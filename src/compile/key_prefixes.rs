//! `key_prefix`: what keys begin with, as bits, because keys are looked at once and not kept.

use super::{Compiler, Names};
use crate::config::diagnostic::Path;
use crate::config::{self, List};
use crate::identity::{KeyPrefixes, MAX_KEY_PREFIXES};

impl<'c> Compiler<'c> {
    /// All that conditions name, each once.
    pub(super) fn key_prefixes(&mut self) -> Vec<&'c str> {
        let config = self.config;
        let of_limit = |limit: &'c config::Limit| [Some(&limit.matches), limit.unless.as_ref()].into_iter().flatten();
        let lists = config.limits.iter().flat_map(of_limit).map(|conditions| &conditions.key_prefix);
        let exceptions = config.exempt.iter().chain(&config.blocked).map(|exception| &exception.key_prefix);
        let mut prefixes: Vec<&str> = Vec::new();
        for prefix in lists.chain(exceptions).flatten().flat_map(|List(prefixes)| prefixes) {
            if !prefixes.contains(&prefix.as_str()) {
                prefixes.push(prefix);
            }
        }
        if prefixes.len() > MAX_KEY_PREFIXES {
            let message =
                format!("conditions name {} different prefixes of keys; {MAX_KEY_PREFIXES} are possible", prefixes.len());
            self.problem(&Path::root("limits"), message);
            prefixes.truncate(MAX_KEY_PREFIXES);
        }
        prefixes
    }

    pub(super) fn prefixes(&mut self, list: &Option<List<String>>, path: &Path, names: &Names<'_>) -> Option<KeyPrefixes> {
        let bits = self.list(list, path, |compiler, prefix, at| {
            if prefix.is_empty() || !prefix.bytes().all(|byte| byte.is_ascii_graphic()) {
                compiler.problem(at, "write what keys begin with: visible ASCII characters, at least one");
            }
            names.key_prefixes.iter().position(|known| *known == prefix)
        });
        bits.map(|bits| bits.into_iter().collect())
    }
}
