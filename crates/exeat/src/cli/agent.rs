//! `exeat agent`: the registry of foreign agents, and the sign-off of their posture.

use clap::{Args, Subcommand};
use exeat_core::id::AgentKey;
use exeat_core::time::Span;
use http::header::{IF_MATCH, IF_NONE_MATCH};
use serde_json::{Map, Value, json};

use super::Session;
use super::given::{self, LabelText};
use crate::client::Call;
use crate::failure::{Exit, Failure, Problem};
use crate::show::table::{Style, cell, fields, money, plain, table};

/// Register foreign agents, sign off their posture
#[derive(Debug, Subcommand)]
pub(crate) enum Agent {
    Add(Box<Add>),
    Set(Box<Set>),
    Sign(Sign),
    List(List),
    Show(Named),
    Probe(super::probe::Probe),
    /// Deny new hops to it
    #[command(after_help = "Example:\n  exeat agent disable auditor --reason 'contract ended'")]
    Disable(Act),
    /// Undo `disable`
    #[command(after_help = "Example:\n  exeat agent enable auditor")]
    Enable(Act),
    /// Deny it for good; it isn't even looked at any more
    #[command(after_help = "Example:\n  exeat agent revoke auditor --reason 'key leaked'")]
    Revoke(Act),
    /// Let hops to it wait; none is denied
    #[command(after_help = "Example:\n  exeat agent halt auditor --reason 'answers look odd'")]
    Halt(Act),
    /// Undo `halt`
    #[command(after_help = "Example:\n  exeat agent resume auditor")]
    Resume(Act),
}

/// Register a foreign agent; nothing is sent to it before `agent sign` and `egress on`
#[derive(Debug, Args)]
#[command(after_help = "\
Here --url is the agent's; name the server with --server or before the command.

Examples:
  exeat agent add auditor --url https://agent.example --ceiling internal
  exeat agent add local --url http://127.0.0.1:9000 --ceiling internal \\
      --plaintext --allow-cidr 127.0.0.0/8
  exeat agent add paid --url https://agent.example/card.json --ceiling internal+eu \\
      --credential env:AGENT_KEY --header X-API-Key --price 4000 --dedup message_id")]
pub(crate) struct Add {
    /// Its key, by which workflows name it
    #[arg(value_name = "KEY")]
    key: AgentKey,
    /// Where it is: a base, or the whole URL of its card
    #[arg(id = "agent_url", long = "url", value_name = "URL", required = true)]
    url: String,
    /// The most it may get, e.g. internal+eu
    #[arg(long, value_name = "LABEL")]
    ceiling: LabelText,
    #[command(flatten)]
    entry: Entry,
    #[command(flatten)]
    server: Server,
}

/// Change an entry; changing its posture unsigns it
#[derive(Debug, Args)]
#[command(after_help = "\
Only what is given changes. Here --url is the agent's; name the server with --server or
before the command.

Examples:
  exeat agent set auditor --price 5000
  exeat agent set auditor --ceiling confidential && exeat agent sign auditor")]
pub(crate) struct Set {
    /// Its key
    #[arg(value_name = "KEY")]
    key: AgentKey,
    /// Where it is: a base, or the whole URL of its card
    #[arg(id = "agent_url", long = "url", value_name = "URL")]
    url: Option<String>,
    /// The most it may get
    #[arg(long, value_name = "LABEL")]
    ceiling: Option<LabelText>,
    #[command(flatten)]
    entry: Entry,
    /// Speak to it over https only
    #[arg(long, conflicts_with = "plaintext")]
    no_plaintext: bool,
    /// Send it no credential
    #[arg(long, conflicts_with = "credential")]
    no_credential: bool,
    #[command(flatten)]
    server: Server,
}

/// The global `--url`, under the name that it has where `--url` is the agent's. Read as the global one.
#[derive(Debug, Args)]
struct Server {
    /// The Exeat server
    #[arg(id = "server_url", long = "server", value_name = "URL", help_heading = "Global options")]
    _url: Option<String>,
}

#[derive(Debug, Args)]
struct Entry {
    /// What kind of agent it is
    #[arg(long, value_name = "PROVIDER", value_parser = ["a2a", "google_adk"])]
    provider: Option<String>,
    /// The version of A2A to speak; auto: as its card says
    #[arg(long, value_name = "VERSION", value_parser = ["auto", "1.0", "0.3", "0.2"])]
    protocol: Option<String>,
    /// A skill it may be asked for; any if never given
    #[arg(long = "skill", value_name = "ID")]
    skills: Vec<String>,
    /// What is joined to the label of whatever it answers
    #[arg(long, value_name = "LABEL")]
    output_label: Option<LabelText>,
    /// Where its credential is kept: env:NAME or file:PATH
    #[arg(long, value_name = "HANDLE")]
    credential: Option<String>,
    /// Send the credential in this header, not as Bearer
    #[arg(long, value_name = "NAME", requires = "credential")]
    header: Option<String>,
    /// Allow http to it
    #[arg(long)]
    plaintext: bool,
    /// Allow addresses that aren't globally routable, e.g. 127.0.0.0/8
    #[arg(long = "allow-cidr", value_name = "CIDR")]
    allow_cidrs: Vec<String>,
    /// Another origin that its card may point to
    #[arg(long = "allow-origin", value_name = "ORIGIN")]
    allow_origins: Vec<String>,
    /// Its region, for residency rules
    #[arg(long, value_name = "REGION")]
    region: Option<String>,
    /// confirm: a callback is a hint and is looked up; body: its content counts
    #[arg(long, value_name = "TRUST", value_parser = ["confirm", "body"])]
    trust: Option<String>,
    /// auto: ask it for callbacks where it offers them; off: look at it
    #[arg(long, value_name = "PUSH", value_parser = ["auto", "off"])]
    push: Option<String>,
    /// message_id: it recognises a message sent twice, so that one may be sent again
    #[arg(long, value_name = "DEDUP", value_parser = ["none", "message_id"])]
    dedup: Option<String>,
    /// Whose context id begins a conversation
    #[arg(long, value_name = "CONTEXT", value_parser = ["auto", "theirs"])]
    context: Option<String>,
    /// What a hop is estimated to cost, in micro-dollars
    #[arg(long, value_name = "MICROUSD")]
    price: Option<u64>,
    /// How long a hop may take: 90s, 15m, 2h, 7d
    #[arg(long, value_name = "DURATION")]
    deadline: Option<Span>,
    /// How many hops may be out to it at once
    #[arg(long, value_name = "N")]
    max_in_flight: Option<u32>,
}

/// Sign off an entry's posture, as it is shown
#[derive(Debug, Args)]
#[command(after_help = "\
The signature carries the digest of the posture that was shown: if that changes meanwhile, it
doesn't count.

Example:
  exeat agent sign auditor --version 3")]
pub(crate) struct Sign {
    /// Its key
    #[arg(value_name = "KEY")]
    key: AgentKey,
    /// Sign only if this is still its version
    #[arg(long, value_name = "N")]
    version: Option<u64>,
}

/// List foreign agents
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  exeat agent list")]
pub(crate) struct List {
    /// At most so many
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
}

/// Show an entry
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  exeat agent show auditor")]
pub(crate) struct Named {
    /// Its key
    #[arg(value_name = "KEY")]
    key: AgentKey,
}

#[derive(Debug, Args)]
pub(crate) struct Act {
    /// Its key
    #[arg(value_name = "KEY")]
    key: AgentKey,
    /// Why
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

impl Agent {
    pub(crate) async fn run(self, session: &Session) -> Result<Exit, Failure> {
        match self {
            Self::Add(args) => args.run(session).await,
            Self::Set(args) => args.run(session).await,
            Self::Sign(args) => args.run(session).await,
            Self::List(args) => args.run(session).await,
            Self::Show(args) => {
                let agent = load(session, &args.key).await?;
                session.show.result(&agent, |style| whole(style, &agent))?;
                Ok(Exit::Done)
            }
            Self::Probe(args) => args.run(session).await,
            Self::Disable(args) => args.run(session, "disable").await,
            Self::Enable(args) => args.run(session, "enable").await,
            Self::Revoke(args) => args.run(session, "revoke").await,
            Self::Halt(args) => args.run(session, "halt").await,
            Self::Resume(args) => args.run(session, "resume").await,
        }
    }
}

async fn load(session: &Session, key: &AgentKey) -> Result<Value, Failure> {
    Ok(session.client.json(&Call::get(&["agents", key.as_str()])).await?)
}

/// Members of an entry that may be written; the others are the server's.
const WRITABLE: [&str; 20] = [
    "url",
    "provider",
    "protocol",
    "skills",
    "credential",
    "allow_origins",
    "plaintext",
    "allow_cidrs",
    "ceiling",
    "output_label",
    "region",
    "redaction",
    "callback_trust",
    "token_in_query",
    "context",
    "dedup",
    "push",
    "price",
    "deadline",
    "max_in_flight",
];

impl Entry {
    /// Writes what is given over the members of an entry.
    fn apply(&self, entry: &mut Map<String, Value>) {
        let credential = self.credential.as_ref().map(|from| match &self.header {
            Some(header) => json!({ "kind": "header", "from": from, "header": header }),
            None => json!({ "kind": "bearer", "from": from }),
        });
        let list = |items: &[String]| (!items.is_empty()).then(|| json!(items));
        let text = |t: &Option<String>| t.as_ref().map(|t| json!(t));
        let given = [
            ("provider", text(&self.provider)),
            ("protocol", text(&self.protocol)),
            ("skills", list(&self.skills)),
            ("output_label", self.output_label.as_ref().map(|l| l.0.clone())),
            ("credential", credential),
            ("plaintext", self.plaintext.then_some(json!(true))),
            ("allow_cidrs", list(&self.allow_cidrs)),
            ("allow_origins", list(&self.allow_origins)),
            ("region", text(&self.region)),
            ("callback_trust", text(&self.trust)),
            ("push", text(&self.push)),
            ("dedup", text(&self.dedup)),
            ("context", text(&self.context)),
            ("deadline", self.deadline.map(|d| json!(d.to_string()))),
            ("max_in_flight", self.max_in_flight.map(|n| json!(n))),
        ];
        entry.extend(given.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
        if let Some(price) = self.price {
            let old = entry.remove("price").unwrap_or(Value::Null);
            let mut new = old.as_object().cloned().unwrap_or_default();
            new.entry("cap_microusd").or_insert(Value::Null);
            new.entry("rule").or_insert(json!("estimate"));
            new.insert("estimate_microusd".into(), json!(price));
            entry.insert("price".into(), Value::Object(new));
        }
    }
}

impl Add {
    fn body(&self) -> Value {
        let mut entry = Map::new();
        entry.insert("url".into(), json!(self.url));
        entry.insert("ceiling".into(), self.ceiling.0.clone());
        self.entry.apply(&mut entry);
        Value::Object(entry)
    }

    async fn run(self, session: &Session) -> Result<Exit, Failure> {
        let call = Call::put(&["agents", self.key.as_str()], &self.body()).header(IF_NONE_MATCH, "*");
        let agent = session.client.json(&call).await?;
        wrote(session, &self.key, &agent)
    }
}

impl Set {
    fn body(&self, agent: &Value) -> Value {
        let mut entry: Map<String, Value> =
            WRITABLE.iter().filter_map(|m| Some(((*m).to_owned(), agent.get(*m)?.clone()))).collect();
        if let Some(url) = &self.url {
            entry.insert("url".into(), json!(url));
        }
        if let Some(ceiling) = &self.ceiling {
            entry.insert("ceiling".into(), ceiling.0.clone());
        }
        self.entry.apply(&mut entry);
        if self.no_plaintext {
            entry.insert("plaintext".into(), json!(false));
        }
        if self.no_credential {
            entry.insert("credential".into(), Value::Null);
        }
        Value::Object(entry)
    }

    async fn run(self, session: &Session) -> Result<Exit, Failure> {
        let agent = load(session, &self.key).await?;
        let version = cell(&agent, "version");
        let call = Call::put(&["agents", self.key.as_str()], &self.body(&agent))
            .header(IF_MATCH, format!("\"{version}\""));
        let agent = session.client.json(&call).await?;
        wrote(session, &self.key, &agent)
    }
}

fn wrote(session: &Session, key: &AgentKey, agent: &Value) -> Result<Exit, Failure> {
    let status = cell(agent, "status");
    session.show.result(agent, |style| format!("{key} {}", style.word(&status)))?;
    if status == "pending_review" || status == "draft" {
        session
            .show
            .progress(&format!("nothing is sent to it before its posture is signed: exeat agent sign {key}"));
    }
    Ok(Exit::Done)
}

impl Sign {
    async fn run(self, session: &Session) -> Result<Exit, Failure> {
        let agent = load(session, &self.key).await?;
        let version = agent.get("version").cloned().unwrap_or(Value::Null);
        if let Some(pin) = self.version
            && version != json!(pin)
        {
            let detail = format!("{} is at version {}, not {pin}", self.key, plain(&version));
            let problem =
                Problem::new("version_conflict", detail).next(format!("exeat agent show {}", self.key));
            return Err(Failure::of(Exit::Refused, problem));
        }
        if session.show.tells() {
            session.show.note_styled(|style| posture(style, &agent));
        }
        let digest = agent.get("posture_digest").cloned().unwrap_or(Value::Null);
        let body = json!({ "version": version, "posture_digest": digest });
        let signed = session.client.json(&Call::post(&["agents", self.key.as_str(), "sign"], &body)).await?;
        session.show.result(&signed, |style| {
            let by = cell(&signed, "signed_by");
            format!("{} {}, signed by {by}", self.key, style.word(&cell(&signed, "status")))
        })?;
        Ok(Exit::Done)
    }
}

impl List {
    async fn run(self, session: &Session) -> Result<Exit, Failure> {
        let page = session.client.pages(Call::get(&["agents"]), self.limit as usize).await?;
        let items = page.get("items").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let rows: Vec<_> = items
            .iter()
            .map(|a| {
                let halted = if a.get("halted") == Some(&Value::Bool(true)) { "halt" } else { "" };
                let price = a.get("price").and_then(|p| p.get("estimate_microusd")).map(money);
                [
                    cell(a, "key"),
                    cell(a, "status"),
                    halted.to_owned(),
                    cell(a, "version"),
                    cell(a, "ceiling"),
                    price.unwrap_or_default(),
                    cell(a, "url"),
                ]
            })
            .collect();
        let headings = ["KEY", "STATUS", "HALTED", "VERSION", "CEILING", "PRICE", "URL"];
        session.show.result(&page, |style| table(style, headings, &rows))?;
        Ok(Exit::Done)
    }
}

impl Act {
    async fn run(self, session: &Session, act: &str) -> Result<Exit, Failure> {
        let body = given::members([("reason", self.reason.map(|r| json!(r)))]);
        let agent = session.client.json(&Call::post(&["agents", self.key.as_str(), act], &body)).await?;
        session.show.result(&agent, |style| {
            let halted = if agent.get("halted") == Some(&Value::Bool(true)) { ", halted" } else { "" };
            format!("{} {}{halted}", self.key, style.word(&cell(&agent, "status")))
        })?;
        Ok(Exit::Done)
    }
}

/// What a signature covers.
fn posture(style: Style, a: &Value) -> String {
    let members: Vec<(&str, String)> = WRITABLE
        .iter()
        .filter(|m| !["price", "deadline", "max_in_flight", "push", "context", "dedup"].contains(m))
        .map(|m| (*m, cell(a, m)))
        .collect();
    let mut all = vec![("agent", cell(a, "key")), ("version", cell(a, "version"))];
    all.extend(members);
    all.push(("posture_digest", cell(a, "posture_digest")));
    fields(style, &all)
}

fn whole(style: Style, a: &Value) -> String {
    let server = ["key", "status", "version", "halted"].iter().map(|m| (*m, cell(a, m)));
    let entry = WRITABLE.iter().map(|m| (*m, cell(a, m)));
    let signed = ["posture_digest", "signed_by", "four_eyes", "health"].iter().map(|m| (*m, cell(a, m)));
    fields(style, &server.chain(entry).chain(signed).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Just {
        #[command(subcommand)]
        agent: Agent,
    }

    fn parse(line: &str) -> Agent {
        Just::try_parse_from(std::iter::once("x").chain(line.split(' '))).unwrap().agent
    }

    fn added(line: &str) -> Value {
        match parse(line) {
            Agent::Add(a) => a.body(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_entry_says_only_what_is_given() {
        assert_eq!(
            added("add a --url https://x --ceiling internal"),
            json!({"url": "https://x", "ceiling": {"level": "internal", "tags": []}})
        );
        assert_eq!(
            added(
                "add a --url http://x --ceiling public+eu --plaintext --allow-cidr 10.0.0.0/8 --allow-cidr ::1/128 \
                 --credential env:K --header X-Key --skill a --skill b --protocol 0.3 --price 7 --dedup message_id \
                 --context theirs --trust body --push off --deadline 90s --output-label internal"
            ),
            json!({
                "url": "http://x", "ceiling": {"level": "public", "tags": ["eu"]}, "plaintext": true,
                "allow_cidrs": ["10.0.0.0/8", "::1/128"],
                "credential": {"kind": "header", "from": "env:K", "header": "X-Key"}, "skills": ["a", "b"],
                "protocol": "0.3", "dedup": "message_id", "context": "theirs", "callback_trust": "body",
                "push": "off", "deadline": "90s", "output_label": {"level": "internal", "tags": []},
                "price": {"estimate_microusd": 7, "cap_microusd": null, "rule": "estimate"}
            })
        );
        assert_eq!(
            added("add a --url http://x --ceiling public --credential file:k")["credential"],
            json!({"kind": "bearer", "from": "file:k"})
        );
    }

    #[test]
    fn a_change_keeps_all_else_and_sends_nothing_that_is_the_servers() {
        let agent = json!({"key": "a", "version": 3, "status": "active", "health": {}, "url": "https://x",
            "ceiling": {"level": "internal", "tags": []}, "plaintext": true, "credential": {"kind": "bearer"},
            "price": {"estimate_microusd": 1, "cap_microusd": 9, "rule": "elapsed"}});
        let Agent::Set(set) = parse("set a --price 5 --no-plaintext --no-credential --ceiling public") else {
            panic!()
        };
        assert_eq!(
            set.body(&agent),
            json!({"url": "https://x", "ceiling": {"level": "public", "tags": []}, "plaintext": false,
                "credential": null, "price": {"estimate_microusd": 5, "cap_microusd": 9, "rule": "elapsed"}})
        );
    }
}
