//! How requests are distributed to targets, and when targets are ejected.

use http::HeaderName;

use super::percent::percent;
use crate::check::Checked;
use crate::file;
use crate::file::located::{Located, ValueOrMap};
use crate::problem::{Problems, quote};
use tidegate_rules::settings::upstream::{Balance, BalanceMethod, Eject, EjectMode, HashKey};

pub(crate) fn balance(
    raw: &Located<ValueOrMap<BalanceMethod, file::HashBalance>>,
    problems: &mut Problems,
) -> Checked<Balance> {
    match raw.optional(problems)? {
        None => Ok(Balance::default()),
        Some(ValueOrMap::Value(method)) => Ok(Balance::Method(*method)),
        Some(ValueOrMap::Map(map)) => Ok(Balance::Hash(hash_key(&map.hash, problems)?)),
    }
}

fn hash_key(raw: &Located<String>, problems: &mut Problems) -> Checked<HashKey> {
    let text = raw.required(problems)?.as_str();
    let key = match text.split_once(':') {
        None if text == "client" => Some(HashKey::Client),
        None if text == "path" => Some(HashKey::Path),
        Some(("header", name)) => HeaderName::try_from(name).ok().map(HashKey::Header),
        Some(("cookie", name)) if HeaderName::try_from(name).is_ok() => Some(HashKey::Cookie(name.to_owned())),
        _ => None,
    };
    key.ok_or_else(|| {
        let help = "write `client`, `header:NAME`, `cookie:NAME` or `path`";
        raw.report(format!("{} is not a key of requests", quote(text)), help, problems)
    })
}

pub(crate) fn eject(
    raw: &Located<ValueOrMap<EjectMode, file::Eject>>,
    problems: &mut Problems,
) -> Checked<Option<Eject>> {
    let default = Eject::default();
    match raw.optional(problems)? {
        None => Ok(Some(default)),
        Some(ValueOrMap::Value(EjectMode::Off)) => Ok(None),
        Some(ValueOrMap::Map(map)) => {
            let after = map.after.number(default.after, problems);
            let max_percent = percent(&map.most, default.max_percent, problems);
            Ok(Some(Eject { after: after?, time: map.r#for.duration(default.time), max_percent: max_percent? }))
        }
    }
}
