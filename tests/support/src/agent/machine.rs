//! A Java process, and the requests in flight to it.

use super::pipes::{Log, command, joined, keep_log, next_answer, write_requests};
use super::*;
use crate::reaper::Adopted;

/// Requests in flight by number; `None` once no more replies arrive.
type Waiting = Arc<Mutex<Option<HashMap<u64, oneshot::Sender<CallResult>>>>>;

/// Drives the pipes of every process, because a process that tests share outlives the runtime of each test.
static IO: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(1).thread_name("agents").enable_all().build().expect("a runtime")
});

#[derive(Debug)]
pub(super) struct Machine {
    /// True if only one agent uses the process.
    pub(super) own: bool,
    pub(super) pid: u32,
    pub(super) version: String,
    next: AtomicU64,
    requests: mpsc::UnboundedSender<String>,
    waiting: Waiting,
    ended: watch::Receiver<bool>,
    log: Log,
    adopted: Mutex<Option<Adopted>>,
    // Dropping this kills the process.
    child: Mutex<Child>,
}

impl Machine {
    /// The process that all agents of this version share by default.
    pub(super) async fn shared(version: &str) -> Arc<Self> {
        type Cell = Arc<tokio::sync::OnceCell<Arc<Machine>>>;
        static SHARED: LazyLock<Mutex<HashMap<String, Cell>>> = LazyLock::new(Mutex::default);
        let cell = SHARED.lock().entry(version.to_owned()).or_default().clone();
        let options = AgentOptions { heap_mb: 768, ..AgentOptions::version(version) };
        cell.get_or_init(async || Self::spawn(false, options).await).await.clone()
    }

    pub(super) async fn start(options: &AgentOptions) -> Arc<Self> {
        Self::spawn(true, options.clone()).await
    }

    async fn spawn(own: bool, options: AgentOptions) -> Arc<Self> {
        let started = IO.spawn(async move { Self::run(own, &options).await });
        Arc::new(started.await.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic())))
    }

    async fn run(own: bool, options: &AgentOptions) -> Self {
        let version = options.version.clone();
        let classpath = tokio::task::spawn_blocking(move || Agent::build(&version)).await.expect("building the agent");
        let mut child = command(&classpath, options).spawn().unwrap_or_else(|e| panic!("java: {e}; {NEEDS}"));
        let pid = child.id().expect("a process just started has an id");
        // Kills even a stopped process, which does not notice the end of its input, when this process ends.
        let adopted = Adopted::new(pid);
        let mut out = BufReader::new(child.stdout.take().expect("piped")).lines();
        let log = Log::default();
        let logged = tokio::spawn(keep_log(BufReader::new(child.stderr.take().expect("piped")).lines(), log.clone()));

        let first = tokio::time::timeout(READY_WITHIN, next_answer(&mut out, &log)).await;
        let ready: Value = match &first {
            Ok(Some(line)) => serde_json::from_str(line).unwrap_or_default(),
            _ => Value::Null,
        };
        if ready["ready"] != true {
            let _ = child.start_kill();
            let _ = logged.await;
            panic!("the agent's process did not get ready: {first:?}\n{}", joined(&log));
        }

        let waiting: Waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        let (requests, queue) = mpsc::unbounded_channel();
        let (ended_tx, ended) = watch::channel(false);
        tokio::spawn(write_requests(child.stdin.take().expect("piped"), queue));
        let (readers, said) = (waiting.clone(), log.clone());
        tokio::spawn(async move {
            while let Some(line) = next_answer(&mut out, &said).await {
                deliver(&readers, &line);
            }
            // Requests in flight fail because their sender is dropped.
            drop(readers.lock().take());
            let _ = ended_tx.send(true);
        });
        let version = ready["version"].as_str().unwrap_or_default().to_owned();
        let (next, adopted, child) = (AtomicU64::new(1), Mutex::new(Some(adopted)), Mutex::new(child));
        Self { own, pid, version, next, requests, waiting, ended, log, adopted, child }
    }

    pub(super) fn send(&self, client: u64, mut request: Value) -> Call {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        request["id"] = id.into();
        request["client"] = client.into();
        let (sender, receiver) = oneshot::channel();
        if let Some(waiting) = self.waiting.lock().as_mut() {
            waiting.insert(id, sender);
        }
        let _ = self.requests.send(request.to_string());
        Call(receiver)
    }

    pub(super) fn log(&self) -> String {
        joined(&self.log)
    }

    pub(super) async fn kill9(&self) {
        let _ = self.child.lock().start_kill();
        drop(self.adopted.lock().take());
        let mut ended = self.ended.clone();
        let _ = ended.wait_for(|ended| *ended).await;
        while matches!(self.child.lock().try_wait(), Ok(None)) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

fn deliver(waiting: &Waiting, line: &str) {
    let answer: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{e} in the agent's answer {line}"));
    let text = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
    let Some(id) = answer["id"].as_u64() else {
        panic!("the agent did not understand: {line}");
    };
    let result = if answer["ok"] == true {
        let time = |name: &str| answer[name].as_u64().unwrap_or_default();
        Ok(Reply { value: answer["value"].clone(), t0: time("t0"), t1: time("t1") })
    } else {
        Err(AgentError { error: text("error"), message: text("message") })
    };
    let sender = waiting.lock().as_mut().and_then(|waiting| waiting.remove(&id));
    if let Some(sender) = sender {
        let _ = sender.send(result);
    }
}
