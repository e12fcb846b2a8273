//! Credentials in spellings that the gateway might overlook and a lenient upstream would not: each is seen, or refused.

use crate::harness::{Client, Gateway, H2, Origin, Table, hashed};
use crate::jwt::signer::hmac_token;
use serde_json::json;

const SECRET: &str = "a-secret-of-at-least-thirty-two-bytes";

/// Somebody who is blocked, by key and by user.
fn config(unknown: &str, strip: bool) -> String {
    format!(
        "identity:
  api_key: {{ sources: [{{ header: x-api-key }}, bearer, {{ query: key }}, {{ cookie: ck }}], unknown: {unknown}, strip: {strip} }}
  user: {{ jwt: {{ sources: [bearer, {{ cookie: session }}], keys: {{ secret: {SECRET} }}, invalid: {unknown}, strip: {strip} }} }}
clients: [{{ id: good, api_keys: ['{}'] }}, {{ id: leaked, api_keys: ['{}'], users: u-1 }}]
blocked: [{{ client: leaked }}]",
        hashed("good"),
        hashed("LEAKED")
    )
}

/// Fields with `KEY` or `TOKEN` in them; each character is a byte.
#[rustfmt::skip]
const SPELLINGS: &[&str] = &[
    "Authorization: Bearer KEY", "Authorization: Bearer\tKEY", "Authorization: Bearer\t KEY", "Authorization: bearer  KEY", "Authorization: \tBEARER KEY\t",
    "Authorization: Bearer\u{a0}KEY", "Authorization: \u{a0}Bearer KEY", "Authorization: Bearer KEY\u{a0}", "Authorization: Bearer \u{85}KEY", "Authorization: Bearer KEY x",
    "Authorization: Bearer:KEY", "Authorization: Bearer,KEY", "Authorization: Bearer=KEY", "Authorization: Bearer\"KEY\"", "Authorization: Basic YTpi, Bearer KEY", "Authorization: xBearer KEY",
    "Authorization: Bearer TOKEN", "Authorization: Bearer\tTOKEN", "Authorization: Bearer\u{a0}TOKEN", "Authorization: Bearer TOKEN x", "Authorization: Basic YTpi, Bearer TOKEN",
    "X-Api-Key: KEY", "X-Api-Key: \t KEY\t", "X-Api-Key: KEY\u{a0}", "X-Api-Key: \u{a0}KEY",
    "Cookie: ck=KEY", "Cookie: ck =KEY", "Cookie: ck\t=KEY", "Cookie: ck= KEY", "Cookie: ck = KEY ", "Cookie: ck=\"KEY\"", "Cookie: ck=KEY\t", "Cookie: \tck=KEY", "Cookie: ck\u{a0}=KEY", "Cookie: ck=\u{a0}KEY", "Cookie: ck=KEY\u{a0}",
    "Cookie: a=b, ck=KEY", "Cookie: a=b,ck=KEY", "Cookie: a=b ck=KEY", "Cookie: a;ck=KEY", "Cookie: Ck=KEY", "Cookie: ck=KEY,a=b", "Cookie: ck=KEY a=b", "Cookie: a=\"; ck=KEY\"", "Cookie: $Version=1; ck=KEY; $Path=/", "Cookie: a=b\nCookie: ck =KEY", "Cookie: ck=\"KEY;\"",
    "Cookie: session=TOKEN", "Cookie: session =TOKEN", "Cookie: session= TOKEN", "Cookie: session=\"TOKEN\"", "Cookie: a=b, session=TOKEN", "Cookie: session\u{a0}=TOKEN",
];

/// Targets likewise.
const TARGETS: &[&str] = &[
    "/?key=KEY",
    "/?+key=KEY",
    "/?%20key=KEY",
    "/?key%20=KEY",
    "/?key%C2%A0=KEY",
    "/?key=%20KEY%09",
    "/?key=KEY%C2%A0",
    "/?a=1;key=KEY",
    "/?%6bey=KEY",
    "/?Key=KEY",
];

fn latin1(text: &str) -> Vec<u8> {
    text.chars().map(|c| u8::try_from(u32::from(c)).unwrap()).collect()
}

fn outcome(gateway: &Gateway, target: &str, fields: &str) -> String {
    let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n{}\r\n\r\n", fields.replace('\n', "\r\n"));
    Client::connect(gateway.addr()).ask(latin1(&request)).outcome()
}

#[test]
fn no_spelling_of_a_blocked_credential_reaches_the_upstream() {
    let token = hmac_token("HS256", SECRET.as_bytes(), json!({ "sub": "u-1" }));
    let written = |text: &str| text.replace("KEY", "LEAKED").replace("TOKEN", &token);
    for (unknown, title) in
        [("reject", "unknown credentials are refused"), ("anonymous", "unknown credentials are as good as none")]
    {
        let mut table = Table::new(title);
        let origin = Origin::ok();
        let gateway = Gateway::before(&origin, &config(unknown, false));
        assert_eq!(outcome(&gateway, "/", "X-Api-Key: good"), "200");
        assert_eq!(outcome(&gateway, "/", "Authorization: Basic YTpi\nCookie: checks=1; a=ck"), "200");
        origin.forget();
        for fields in SPELLINGS {
            table.outcome(&format!("{fields:?}"), "401|403", &outcome(&gateway, "/", &written(fields)));
        }
        for target in TARGETS {
            table.outcome(target, "401|403", &outcome(&gateway, &written(target), ""));
        }
        for value in ["Bearer\tLEAKED", "Bearer  LEAKED", "Bearer:LEAKED"] {
            let fields = [(":method", "GET"), (":scheme", "http"), (":authority", "a"), (":path", "/"), ("authorization", value)];
            table.outcome(&format!("h2 {value:?}"), "401|403", &H2::connect(gateway.addr()).ask(&fields, None).outcome());
        }
        assert!(origin.seen().is_empty(), "{:?}", origin.lines());
    }
}

#[test]
fn no_spelling_of_a_credential_escapes_strip_when_another_one_counts() {
    let token = hmac_token("HS256", SECRET.as_bytes(), json!({ "sub": "u-2" }));
    let written = |text: &str| text.replace("KEY", "LEAKED").replace("TOKEN", &token);
    let mut table = Table::new("hidden credentials with strip");
    let origin = Origin::ok();
    let gateway = Gateway::before(&origin, &config("anonymous", true));
    let credential = |fields: &str| if fields.starts_with("X-Api-Key") { None } else { Some(written(fields)) };
    let rows = SPELLINGS.iter().filter_map(|fields| credential(fields)).map(|fields| ("/".to_owned(), fields));
    let rows: Vec<_> = rows.chain(TARGETS.iter().map(|target| (written(target), String::new()))).collect();
    for (target, fields) in rows {
        origin.forget();
        // The key in the first source decides; tokens are looked for all the same.
        let status = outcome(&gateway, &target, &format!("X-Api-Key: good\n{fields}"));
        let seen: String = origin.seen().iter().map(|seen| String::from_utf8_lossy(&seen.wire).into_owned()).collect();
        let is_right = match status.as_str() {
            "200" => !seen.is_empty() && !seen.contains("LEAKED") && !seen.contains(&token) && !seen.contains("good"),
            status => status == "401" && seen.is_empty(),
        };
        table.row(&format!("{target} {fields:?}"), if is_right { String::new() } else { format!("{status}: {seen}") });
    }
}
