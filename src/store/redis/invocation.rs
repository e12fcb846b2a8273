//! What crosses from decisions to connections: a script, its keys and its arguments. Bytes only; neither what they mean nor how
//! they travel.

use std::fmt;
use std::fmt::Write as _;
use std::sync::LazyLock;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use redis::Cmd;
use smallvec::SmallVec;

/// A name in the store. If it has a part in braces, that part alone chooses the slot of a cluster.
#[derive(PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StoreKey(pub SmallVec<[u8; 64]>);

/// One call of a script: EVALSHA, or EVAL of the text with the same keys and arguments if that is answered with NOSCRIPT.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// What to run.
    pub script: &'static Script,
    /// On which names, all of one slot; the first says where.
    pub keys: Vec<StoreKey>,
    /// What follows the keys.
    pub args: Args,
}

/// A script and the name that servers know it by. The name is of the text, so gateways of different versions do not disturb each other.
#[derive(Debug)]
pub struct Script {
    /// For EVAL, when a server does not know it yet.
    pub text: &'static str,
    /// For EVALSHA: the SHA-1 of the text in hexadecimal.
    pub sha: LazyLock<String>,
}

/// Arguments, one after another in one piece of memory.
#[derive(Debug, Clone, Default)]
pub struct Args {
    pub(super) bytes: Vec<u8>,
    ends: SmallVec<[u32; 16]>,
}

impl Clone for StoreKey {
    /// In one piece; derived, it would go byte by byte.
    fn clone(&self) -> Self {
        Self(SmallVec::from_slice(&self.0))
    }
}

impl StoreKey {
    /// A name such as `PREFIX:instances`.
    #[must_use]
    pub fn named(prefix: &str, name: &str) -> Self {
        let mut key = SmallVec::with_capacity(prefix.len() + 1 + name.len());
        key.extend_from_slice(prefix.as_bytes());
        key.push(b':');
        key.extend_from_slice(name.as_bytes());
        Self(key)
    }

    /// As it is sent.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl Invocation {
    /// `EVALSHA sha numkeys key … arg …`.
    #[must_use]
    pub fn evalsha(&self) -> Cmd {
        self.command("EVALSHA", &self.script.sha)
    }

    /// `EVAL text numkeys key … arg …`.
    #[must_use]
    pub fn eval(&self) -> Cmd {
        self.command("EVAL", self.script.text)
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let Self { keys, args, .. } = self;
        let bytes = keys.iter().map(|key| key.0.len()).sum::<usize>() + args.bytes.len() + name.len() + script.len() + 1;
        let mut command = Cmd::with_capacity(3 + keys.len() + args.ends.len(), bytes);
        command.arg(name).arg(script).arg(keys.len());
        keys.iter().for_each(|key| {
            command.arg(key.as_bytes());
        });
        args.iter().for_each(|arg| {
            command.arg(arg);
        });
        command
    }
}

/// The name that servers know a script by.
#[must_use]
pub(super) fn sha(text: &str) -> String {
    let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    digest.as_ref().iter().fold(String::with_capacity(40), |mut hex, byte| {
        // Into memory: can't go wrong.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

impl Args {
    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut begin = 0;
        self.ends.iter().map(move |end| {
            let end = usize::try_from(*end).unwrap_or(usize::MAX);
            let arg = self.bytes.get(begin..end).unwrap_or_default();
            begin = end;
            arg
        })
    }

    /// Adds a number, in decimal.
    pub fn number(&mut self, number: u64) {
        self.bytes.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        self.end();
    }

    /// Adds a number that may be negative, in decimal.
    pub fn signed(&mut self, number: i64) {
        self.bytes.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        self.end();
    }

    /// Adds a text.
    pub fn text(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
        self.end();
    }

    /// What was put into `bytes` since the last is one.
    pub(super) fn end(&mut self) {
        self.ends.push(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX));
    }
}

impl fmt::Debug for StoreKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static ONE: Script = Script { text: "return 1", sha: LazyLock::new(|| sha("return 1")) };

    #[test]
    fn a_call_is_what_servers_read() {
        let mut args = Args::default();
        args.text("");
        args.number(u64::MAX);
        args.signed(-7);
        let call = Invocation { script: &ONE, keys: vec![StoreKey::named("t", "{a}:b")], args };
        // What `SCRIPT LOAD "return 1"` answers.
        let sha = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
        let sent = |command: &Cmd| String::from_utf8(command.get_packed_command()).unwrap().replace("\r\n", " ");
        let rest = "$1 1 $7 t:{a}:b $0  $20 18446744073709551615 $2 -7 ";
        assert_eq!(sent(&call.evalsha()), format!("*7 $7 EVALSHA $40 {sha} {rest}"));
        assert_eq!(sent(&call.eval()), format!("*7 $4 EVAL $8 return 1 {rest}"));
    }
}
