//! Passwords do not appear in errors, in `Debug` output, or in logs of this crate or fred at any level.

use std::error::Error as _;

use distlock::{Acquire, Client, Error};
use distlock_support::proxy::{Action, Matcher, Proxy};
use distlock_support::{Admin, RedisServer};

use crate::ears::{Ears, Facade};
use crate::rig::{heals, stubborn};
use bed::{PATIENCE, idle, ms, secs};

/// The part of every password that needs no URL encoding.
const NEEDLE: &str = "hunter2";

/// Contains characters that a URL must encode, and characters that an inline command must quote.
const PASSWORD: &str = "hunter2-p@ss:w/o?r#d% \"x\" \\";
const ENCODED: &str = "hunter2-p%40ss%3Aw%2Fo%3Fr%23d%25%20%22x%22%20%5C";

/// Returns true if the text contains the password or a part of it: as it is, percent-encoded, as a list of bytes, or in
/// hex.
pub fn shows(text: &str) -> bool {
    [NEEDLE, "104, 117, 110, 116, 101, 114, 50", "68756e74657232", "p@ss:w", "p%40ss"]
        .iter()
        .any(|part| text.contains(part))
}

/// Collects all output of a test, which is checked at the end.
#[derive(Default)]
struct Shown(Vec<String>);

impl Shown {
    fn debug(&mut self, what: &impl std::fmt::Debug) {
        self.0.push(format!("{what:?} {what:#?}"));
    }

    fn error(&mut self, error: &Error) {
        self.0.push(format!("{error} {error:#}"));
        self.debug(error);
        let mut source = error.source();
        while let Some(error) = source {
            self.0.push(format!("{error} {error:?}"));
            source = error.source();
        }
    }

    fn outcome<T>(&mut self, what: &str, outcome: Result<T, Error>) {
        match outcome {
            Ok(_) => panic!("{what}: it succeeded, and was to fail"),
            Err(error) => self.error(&error),
        }
    }
}

#[tokio::test]
async fn errors_for_unusable_urls_do_not_contain_password() {
    let mut shown = Shown::default();
    let (ears, _listening) = Ears::open();
    let login = format!("user:{ENCODED}@");
    let urls = [
        format!("redis://{login}127.0.0.1:notaport"),
        format!("redis://{login}127.0.0.1:99999"),
        format!("redis://{login}127.0.0.1:6379/notadatabase"),
        format!("redis://{login}"),
        format!("redis://{login}[::1"),
        format!("redis://user:{PASSWORD}@127.0.0.1:1"),
        format!("redis:{login}127.0.0.1"),
        format!("{login}127.0.0.1"),
        format!("http://{login}127.0.0.1"),
        format!("{NEEDLE}://{login}127.0.0.1"),
        NEEDLE.to_owned(),
        format!("rediss://{login}127.0.0.1:1"),
        format!("redis-cluster://{login}127.0.0.1:1"),
        format!("redis-sentinel://{login}127.0.0.1:1"),
        format!("unix://{login}relative/path"),
        format!("unix://{login}/no/such.sock"),
        format!("redis+unix://{login}/no/such.sock"),
        format!("redis://{ENCODED}@127.0.0.1:1"),
        format!("redis://127.0.0.1:1/?password={ENCODED}"),
    ];
    for url in urls {
        let builder = Client::builder(&url).connect_timeout(ms(50));
        shown.debug(&builder);
        shown.outcome(&url, builder.connect().await);
    }
    shown.outcome("connect", Client::connect(&format!("redis://{login}127.0.0.1:x")).await);
    shown.0.extend(ears.lines());
    let found: Vec<_> = shown.0.iter().filter(|text| shows(text)).collect();
    assert!(found.is_empty(), "{found:#?}");
}

/// Causes every kind of error at a server that asks for the password, and prints everything that has `Debug`.
#[tokio::test]
async fn password_appears_in_no_error_debug_output_or_log() {
    let facade = Facade::listen();
    let (ears, _listening) = Ears::open();
    let mut shown = Shown::default();
    let server = RedisServer::start();
    let admin = Admin::connect(&server).await;
    let () = admin.cmd(&["ACL", "SETUSER", "locks", "on", &format!(">{PASSWORD}"), "~*", "&*", "+@all"]).await;
    let () = admin.cmd(&["CONFIG", "SET", "requirepass", PASSWORD]).await;
    let proxy = Proxy::start(server.addr());
    let url = |user: &str| proxy.url().replace("redis://", &format!("redis://{user}:{ENCODED}@"));
    let login = || stubborn(&proxy.url()).username("locks");
    let mistyped = format!("{}-and-more", url("locks").replace('@', "x@"));
    shown.outcome("wrong user", stubborn(&url("nobody")).connect().await);
    shown.outcome("wrong password", stubborn(&mistyped).connect().await);
    shown.outcome("wrong password", login().password(format!("{NEEDLE}x")).connect().await);
    for builder in [stubborn(&url("locks")), login().password(PASSWORD)] {
        shown.debug(&builder);
        let client = builder.connect().await.unwrap();
        refused_and_lost(&mut shown, &client, &admin, &proxy).await;
        cut_off(&mut shown, &client, &admin, &proxy).await;
        client.shutdown(PATIENCE).await.unwrap();
        shown.outcome("closed", client.reentrant("a").lock().await);
        shown.outcome("closed", client.shutdown(secs(1)).await);
        shown.debug(&client);
    }
    facade.close();
    let (heard, mut found) = facade.found();
    let lines = ears.lines();
    let deaf = lines.len() <= 50 || heard <= 1000 && !bed::is_direct();
    assert!(!deaf, "the ears are deaf: {} lines of ours, {heard} of fred's", lines.len());
    shown.0.extend(lines);
    found.extend(shown.0.into_iter().filter(|text| shows(text)));
    assert!(found.is_empty(), "{found:#?}");
}

/// A server without `HELLO` repeats the arguments of `HELLO` in its error. A server without `AUTH` does the same.
#[tokio::test]
async fn password_repeated_by_server_appears_in_no_error() {
    // The password does not contain [`NEEDLE`], because fred's trace log repeats server errors (SECURITY.md).
    const PASSWORD: &str = "s3cret-of-hello";
    let (ears, _listening) = Ears::open();
    let mut shown = Shown::default();
    let server = |config: &str| {
        let user = format!("user locks on >{PASSWORD} ~* &* +@all\n");
        RedisServer::builder().config(&(user + config)).start()
    };
    let (hello, neither) = ("rename-command HELLO \"\"\n", "rename-command HELLO \"\"\nrename-command AUTH \"\"\n");
    let (whole, without_hello, without_both) = (server(""), server(hello), server(neither));
    for (direct, without) in [(false, &without_hello), (true, &without_both)] {
        let proxy = Proxy::start(whole.addr());
        let login = |url: &str| {
            stubborn(url).configure(|options| options.use_fred = !direct).username("locks").password(PASSWORD)
        };
        shown.outcome("no login", login(&without.url()).connect_timeout(secs(1)).connect().await);
        let client = login(&proxy.url()).connect().await.unwrap();
        proxy.set_upstream(without.addr());
        proxy.close_all();
        let lock = client.reentrant("a");
        let refused = async || match lock.try_lock().await {
            Err(error) => {
                shown.error(&error);
                error.to_string().contains(if direct { "'AUTH'" } else { "HELLO" })
            }
            Ok(_) => false,
        };
        bed::eventually("the login is refused", refused).await;
        shown.debug(&client);
        proxy.set_upstream(whole.addr());
        heals(&client).await;
        client.shutdown(PATIENCE).await.unwrap();
    }
    shown.0.extend(ears.lines());
    let found: Vec<_> = shown.0.iter().filter(|text| text.contains("s3cret")).collect();
    assert!(found.is_empty(), "{found:#?}");
}

async fn refused_and_lost(shown: &mut Shown, client: &Client, admin: &Admin, proxy: &Proxy) {
    let lock = client.reentrant("a");
    let guard = lock.lock().await.unwrap();
    let state = lock.state().await.unwrap();
    shown.debug(&(client, client.options(), client.stats(), &lock, &guard, guard.owner(), state));
    shown.debug(&(Acquire::new().owner(guard.owner()), client.renew_now().await, lock.clone()));
    guard.unlock().await.unwrap();

    // Refusals of the server.
    let () = admin.cmd(&["SET", "text", PASSWORD]).await;
    shown.outcome("wrong type", client.reentrant("text").lock().await);
    let () = admin.cmd(&["DEL", "text"]).await;
    admin.config_set("maxmemory", "1").await;
    shown.outcome("out of memory", lock.try_lock().await);
    admin.config_set("maxmemory", "0").await;
    let () = admin.cmd(&["ACL", "SETUSER", "locks", "-evalsha", "-eval"]).await;
    shown.outcome("not permitted", lock.lock().await);
    let () = admin.cmd(&["ACL", "SETUSER", "locks", "+@all"]).await;

    // Faults of the network.
    for action in [Action::SwallowReplyClose, Action::SwallowReplyRst, Action::HangReply] {
        proxy.on_request(Matcher::command("EVALSHA"), action);
        shown.outcome("lost", lock.try_lock().await);
        idle(client).await;
    }
    let guard = lock.lock().await.unwrap();
    let () = admin.cmd(&["DEL", "a"]).await;
    shown.outcome("not held", guard.unlock().await);
    let guard = lock.lock_leased(secs(1)).await.unwrap();
    shown.error(&guard.lost().await);
    shown.outcome("extend", guard.extend(secs(1)).await);
}

/// The password changes while connections break, and then the server stops.
async fn cut_off(shown: &mut Shown, client: &Client, admin: &Admin, proxy: &Proxy) {
    let lock = client.reentrant("a");
    let () = admin.cmd(&["ACL", "SETUSER", "locks", "resetpass", ">other"]).await;
    proxy.close_all();
    for _ in 0..3 {
        shown.outcome("no login", lock.try_lock().await);
    }
    let () = admin.cmd(&["ACL", "SETUSER", "locks", "resetpass", &format!(">{PASSWORD}")]).await;
    heals(client).await;
    proxy.refuse(true);
    proxy.rst_all();
    shown.outcome("away", lock.try_lock().await);
    shown.outcome("away", lock.state().await);
    proxy.refuse(false);
    heals(client).await;
    idle(client).await;
}
