//! Values that may be written in more than one way: one or a list, a word or a map. Each says what it expects.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{self, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de::IgnoredAny};

use super::IpPrefixes;
use crate::units::RateOrUnlimited;

/// One value or a list of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct List<T>(pub Vec<T>);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMany<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for OneOrMany<T> {
            type Value = List<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("one value or a list")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<List<T>, E> {
                T::deserialize(text.into_deserializer()).map(|one| List(vec![one]))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<List<T>, E> {
                T::deserialize(number.into_deserializer()).map(|one| List(vec![one]))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<List<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(|one| List(vec![one]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<List<T>, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(seq)).map(List)
            }
        }
        deserializer.deserialize_any(OneOrMany(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for List<T> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        format!("ListOf{}", T::schema_name()).into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [one, { "type": "array", "items": one }] })
    }
}

/// A key whose capability this version does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NotYet;

impl<'de> Deserialize<'de> for NotYet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer)?;
        Err(de::Error::custom(NOT_AVAILABLE))
    }
}

impl JsonSchema for NotYet {
    fn schema_name() -> Cow<'static, str> {
        "NotAvailable".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!(false)
    }
}

/// What a refused key says.
pub(crate) const NOT_AVAILABLE: &str = "not available in this version";

/// A word of an enum, or a map whose capability this version does not have. serde_yaml would want a YAML tag for the latter.
pub(super) fn word_only<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    struct WordOnly<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> Visitor<'de> for WordOnly<T> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a word")
        }
        fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
            T::deserialize(text.into_deserializer())
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<T, A::Error> {
            let key: Option<String> = map.next_key()?;
            Err(de::Error::custom(format!("`{}` is {NOT_AVAILABLE}", key.unwrap_or_default())))
        }
    }
    deserializer.deserialize_any(WordOnly(PhantomData))
}

/// How many worker threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Workers {
    /// One per core.
    #[default]
    Auto,
    /// This many.
    Count(u16),
}

impl<'de> Deserialize<'de> for Workers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AutoOrCount;
        impl Visitor<'_> for AutoOrCount {
            type Value = Workers;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`auto` or a number from 1 to 1024")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Workers, E> {
                match text {
                    "auto" => Ok(Workers::Auto),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Workers, E> {
                match u16::try_from(number) {
                    Ok(count @ 1..=1024) => Ok(Workers::Count(count)),
                    _ => Err(E::invalid_value(de::Unexpected::Unsigned(number), &self)),
                }
            }
        }
        deserializer.deserialize_any(AutoOrCount)
    }
}

impl JsonSchema for Workers {
    fn schema_name() -> Cow<'static, str> {
        "Workers".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "const": "auto" }, { "type": "integer", "minimum": 1, "maximum": 1024 }] })
    }
}

/// All windows of a limit for one kind of caller; all must pass.
pub type Windows = List<RateOrUnlimited>;

/// The rate of a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RateSpec {
    /// The same for everybody.
    Same(Windows),
    /// By tier; `default` for the tiers that are not named.
    ByTier(BTreeMap<String, Windows>),
}

impl<'de> Deserialize<'de> for RateSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct RateOrTiers;
        impl<'de> Visitor<'de> for RateOrTiers {
            type Value = RateSpec;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a rate such as 100/min, a list of rates, or a map from tier to rate")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<RateSpec, E> {
                Windows::deserialize(text.into_deserializer()).map(RateSpec::Same)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<RateSpec, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(seq)).map(|rates| RateSpec::Same(List(rates)))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RateSpec, A::Error> {
                BTreeMap::deserialize(MapAccessDeserializer::new(map)).map(RateSpec::ByTier)
            }
        }
        deserializer.deserialize_any(RateOrTiers)
    }
}

impl JsonSchema for RateSpec {
    fn schema_name() -> Cow<'static, str> {
        "RateSpec".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let windows = generator.subschema_for::<Windows>();
        json_schema!({ "anyOf": [windows, { "type": "object", "additionalProperties": windows }] })
    }
}

/// `{header: N}`, `{query: N}`, `{cookie: N}` or `{claim: N}`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum NamedField {
    /// A request header.
    Header(String),
    /// A query parameter.
    Query(String),
    /// A cookie.
    Cookie(String),
    /// What a token says.
    Claim(String),
}

/// One part of what gets a counter of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PerPart {
    /// A word: `global`, `client`, `api_key`, `user`, `tenant`, `tier`, `ip`, `route`, `endpoint`.
    Word(PerWord),
    /// A field of the request.
    Field(NamedField),
    /// The address in a grouping of its own.
    Ip(IpPrefixes),
}

/// The parts of `per` that are maps.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum PerMap {
    /// A request header.
    Header(String),
    /// A query parameter.
    Query(String),
    /// A cookie.
    Cookie(String),
    /// What a token says.
    Claim(String),
    /// The address in a grouping of its own.
    Ip(IpPrefixes),
}

impl From<PerMap> for PerPart {
    fn from(map: PerMap) -> Self {
        match map {
            PerMap::Header(name) => Self::Field(NamedField::Header(name)),
            PerMap::Query(name) => Self::Field(NamedField::Query(name)),
            PerMap::Cookie(name) => Self::Field(NamedField::Cookie(name)),
            PerMap::Claim(name) => Self::Field(NamedField::Claim(name)),
            PerMap::Ip(prefixes) => Self::Ip(prefixes),
        }
    }
}

/// What gets a counter of its own.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Per(pub List<PerPart>);

/// The words of `per`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PerWord {
    /// One counter for all.
    Global,
    /// The first known of key, user and address.
    Client,
    /// The API key.
    ApiKey,
    /// The user.
    User,
    /// The client's tenant.
    Tenant,
    /// The tier.
    Tier,
    /// The grouped address.
    Ip,
    /// The route.
    Route,
    /// Method and route.
    Endpoint,
    /// The certificate that the client has shown.
    Certificate,
}

impl<'de> Deserialize<'de> for PerPart {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WordOrField;
        impl<'de> Visitor<'de> for WordOrField {
            type Value = PerPart;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a word such as client or ip, or {header: NAME}, {query: NAME}, {cookie: NAME}, {claim: NAME}, {ip: {ipv6_prefix: N}}",
                )
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<PerPart, E> {
                PerWord::deserialize(text.into_deserializer()).map(PerPart::Word)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PerPart, A::Error> {
                PerMap::deserialize(MapAccessDeserializer::new(map)).map(PerPart::from)
            }
        }
        deserializer.deserialize_any(WordOrField)
    }
}

impl JsonSchema for Per {
    fn schema_name() -> Cow<'static, str> {
        "Per".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let word = generator.subschema_for::<PerWord>();
        let field = generator.subschema_for::<PerMap>();
        let part = json_schema!({ "anyOf": [word, field] });
        json_schema!({ "anyOf": [part, { "type": "array", "items": part }] })
    }
}

/// Where an API key or a token is looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApiKeySource {
    /// `Authorization: Bearer …`.
    Bearer,
    /// A header, query parameter or cookie.
    Field(NamedField),
}

impl<'de> Deserialize<'de> for ApiKeySource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BearerOrField;
        impl<'de> Visitor<'de> for BearerOrField {
            type Value = ApiKeySource;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bearer, {header: NAME}, {query: NAME} or {cookie: NAME}")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<ApiKeySource, E> {
                match text {
                    "bearer" => Ok(ApiKeySource::Bearer),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ApiKeySource, A::Error> {
                NamedField::deserialize(MapAccessDeserializer::new(map)).map(ApiKeySource::Field)
            }
        }
        deserializer.deserialize_any(BearerOrField)
    }
}

impl JsonSchema for ApiKeySource {
    fn schema_name() -> Cow<'static, str> {
        "ApiKeySource".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let field = generator.subschema_for::<NamedField>();
        json_schema!({ "anyOf": [{ "const": "bearer" }, field] })
    }
}

/// One address of an upstream: a URL, or a map with its weight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// `http://host:port`.
    pub url: String,
    /// Its share of the requests, 1 by default.
    pub weight: u32,
}

impl<'de> Deserialize<'de> for Endpoint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Full {
            url: String,
            #[serde(default = "one")]
            weight: u32,
        }
        fn one() -> u32 {
            1
        }
        struct UrlOrMap;
        impl<'de> Visitor<'de> for UrlOrMap {
            type Value = Endpoint;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a URL such as http://10.0.0.7:8080, or {url: …, weight: 2}")
            }
            fn visit_str<E: de::Error>(self, url: &str) -> Result<Endpoint, E> {
                Ok(Endpoint { url: url.to_owned(), weight: 1 })
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Endpoint, A::Error> {
                let Full { url, weight } = Full::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Endpoint { url, weight })
            }
        }
        deserializer.deserialize_any(UrlOrMap)
    }
}

impl JsonSchema for Endpoint {
    fn schema_name() -> Cow<'static, str> {
        "Endpoint".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            { "type": "string" },
            { "type": "object", "additionalProperties": false, "required": ["url"], "properties": {
                "url": { "type": "string" }, "weight": { "type": "integer", "minimum": 1 } } },
        ] })
    }
}

/// A status, or a class of them: `404`, `"5xx"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusPattern {
    /// The lowest.
    pub from: u16,
    /// The highest.
    pub to: u16,
}

impl<'de> Deserialize<'de> for StatusPattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CodeOrClass;
        impl Visitor<'_> for CodeOrClass {
            type Value = StatusPattern;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a status from 200 to 599, or a class such as 5xx")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<StatusPattern, E> {
                if let Ok(code) = text.parse() {
                    return self.visit_u64(code);
                }
                let class =
                    text.strip_suffix("xx").and_then(|class| class.parse::<u16>().ok()).filter(|class| (2..=5).contains(class));
                let from = class.ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))? * 100;
                Ok(StatusPattern { from, to: from + 99 })
            }
            fn visit_u64<E: de::Error>(self, code: u64) -> Result<StatusPattern, E> {
                let valid = u16::try_from(code).ok().filter(|code| (200..=599).contains(code));
                let code = valid.ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(code), &self))?;
                Ok(StatusPattern { from: code, to: code })
            }
        }
        deserializer.deserialize_any(CodeOrClass)
    }
}

impl JsonSchema for StatusPattern {
    fn schema_name() -> Cow<'static, str> {
        "StatusPattern".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "integer", "minimum": 200, "maximum": 599 }, { "type": "string", "pattern": "^[2-5](xx|[0-9][0-9])$" }] })
    }
}
