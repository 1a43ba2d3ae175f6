//! A running stub, a caller with a raw socket, and a receiver of pushes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use super::super::{Protocol, Stub, StubAgentArgs, Switch, serve};

const PATIENCE: Duration = Duration::from_secs(20);

pub(super) fn args() -> StubAgentArgs {
    StubAgentArgs {
        listen: "127.0.0.1:0".into(),
        protocol: Protocol::Both,
        push: Switch::On,
        token: None,
        log: None,
        dedup: Switch::Off,
    }
}

/// A stub that lives as long as this.
pub(super) struct Rig {
    pub(super) address: SocketAddr,
    _serving: JoinSet<()>,
}

impl Rig {
    pub(super) async fn start(args: StubAgentArgs) -> Self {
        let listener = TcpListener::bind(&args.listen).await.unwrap();
        let address = listener.local_addr().unwrap();
        let stub = Stub::new(args, address).unwrap();
        let mut serving = JoinSet::new();
        serving.spawn(serve(stub, listener, std::future::pending()));
        Self { address, _serving: serving }
    }

    pub(super) async fn plain() -> Self {
        Self::start(args()).await
    }

    pub(super) async fn dial(&self) -> TcpStream {
        #[expect(clippy::disallowed_methods, reason = "the caller in these tests")]
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends a request, reads to the end of the connection.
    pub(super) async fn raw(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Vec<u8> {
        let mut stream = self.dial().await;
        let mut head = format!("{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n", self.address);
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("content-length: {}\r\n\r\n", body.len()));
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
        read.expect("the stub answers or hangs up").unwrap();
        answer
    }

    pub(super) async fn http(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Http {
        Http::parse(&self.raw(method, path, headers, body).await)
    }

    pub(super) async fn get(&self, path: &str) -> Http {
        self.http("GET", path, &[], "").await
    }

    pub(super) async fn seen(&self) -> Value {
        self.get("/_seen").await.json()
    }

    /// A 1.0 call.
    pub(super) async fn v1(&self, method: &str, params: Value) -> Http {
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
        self.http("POST", "/rpc", &[("A2A-Version", "1.0")], &body.to_string()).await
    }

    /// A 0.3 call.
    pub(super) async fn v03(&self, method: &str, params: Value) -> Http {
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
        self.http("POST", "/rpc", &[], &body.to_string()).await
    }

    /// Sends a text over 1.0 under the message id `m`.
    pub(super) async fn send(&self, text: &str) -> Http {
        self.v1("SendMessage", message("m", text)).await
    }

    /// The task that a text makes.
    pub(super) async fn task(&self, text: &str) -> Value {
        self.send(text).await.json()["result"]["task"].clone()
    }

    pub(super) async fn look(&self, id: &Value) -> Http {
        self.v1("GetTask", json!({ "id": id })).await
    }

    /// Looks until the task is in a state.
    pub(super) async fn await_state(&self, id: &Value, state: &str) -> Value {
        eventually(async || {
            let task = self.look(id).await.json()["result"].clone();
            (task["status"]["state"] == state).then_some(task)
        })
        .await
    }
}

/// Asks until there is an answer.
pub(super) async fn eventually<T>(ask: impl AsyncFn() -> Option<T>) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asking).await.expect("it happens in the end")
}

pub(super) fn message(id: &str, text: &str) -> Value {
    json!({ "message": { "messageId": id, "role": "ROLE_USER", "parts": [{ "text": text }] } })
}

pub(super) fn message_v03(id: &str, text: &str) -> Value {
    let parts = json!([{ "kind": "text", "text": text }]);
    json!({ "message": { "kind": "message", "messageId": id, "role": "user", "parts": parts } })
}

pub(super) struct Http {
    pub(super) status: u16,
    head: String,
    pub(super) body: String,
}

impl Http {
    fn parse(raw: &[u8]) -> Self {
        let text = String::from_utf8(raw.to_vec()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").expect("an HTTP answer");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, head: head.to_owned(), body: body.to_owned() }
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    pub(super) fn error_code(&self) -> i64 {
        assert_eq!(self.status, 200);
        self.json()["error"]["code"].as_i64().expect("a JSON-RPC error")
    }
}

/// A notification as it came.
pub(super) struct Pushed {
    pub(super) head: Http,
}

impl Pushed {
    pub(super) fn json(&self) -> Value {
        self.head.json()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.head.header(name)
    }
}

/// A webhook; each notification is answered when there is a permit, with the next status.
pub(super) struct Webhook {
    pub(super) url: String,
    pushes: mpsc::Receiver<Pushed>,
    permits: Arc<Semaphore>,
    _serving: JoinSet<()>,
}

impl Webhook {
    /// Answers at once.
    pub(super) async fn open() -> Self {
        Self::answering(vec![], Semaphore::MAX_PERMITS).await
    }

    /// Answers nothing until released.
    pub(super) async fn holding() -> Self {
        Self::answering(vec![], 0).await
    }

    /// Answers with these statuses first, then 202.
    pub(super) async fn answering(statuses: Vec<u16>, permits: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook?k=v", listener.local_addr().unwrap());
        let (sender, pushes) = mpsc::channel(1_000);
        let permits = Arc::new(Semaphore::new(permits));
        let held = Arc::clone(&permits);
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            let mut statuses = statuses.into_iter();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let status = statuses.next().unwrap_or(202);
                connections.spawn(receive(stream, status, sender.clone(), Arc::clone(&held)));
            }
        });
        Self { url, pushes, permits, _serving: serving }
    }

    pub(super) async fn next(&mut self) -> Pushed {
        tokio::time::timeout(PATIENCE, self.pushes.recv()).await.expect("a push comes").unwrap()
    }

    pub(super) fn release(&self) {
        self.permits.add_permits(1_000);
    }

    /// The 1.0 parameters of a send that asks to be told here.
    pub(super) fn asked_by(&self, id: &str, text: &str) -> Value {
        let mut params = message(id, text);
        params["configuration"] = json!({ "returnImmediately": true, "taskPushNotificationConfig": {
            "url": self.url, "token": "token-of-many-letters",
            "authentication": { "scheme": "Bearer", "credentials": "secret-of-many-letters" },
        }});
        params
    }
}

async fn receive(mut stream: TcpStream, status: u16, sender: mpsc::Sender<Pushed>, permits: Arc<Semaphore>) {
    let mut bytes = Vec::new();
    let pushed = loop {
        if stream.read_buf(&mut bytes).await.unwrap() == 0 {
            return;
        }
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let http = Http { status: 0, head: head.to_owned(), body: body.to_owned() };
        let length: usize = http.header("content-length").unwrap().parse().unwrap();
        if http.body.len() == length {
            break Pushed { head: http };
        }
    };
    sender.send(pushed).await.unwrap();
    permits.acquire().await.unwrap().forget();
    let answer = format!("HTTP/1.1 {status} Whatever\r\ncontent-length: 0\r\n\r\n");
    stream.write_all(answer.as_bytes()).await.unwrap();
}
