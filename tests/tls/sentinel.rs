//! `rediss-sentinel://` and `rediss-replicated://`: sentinels, servers and clients speak TLS. Sentinels and servers
//! have separate trust options.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use bed::secs;
use distlock::{Acks, Builder, Credentials, Error, Tls};
use distlock_support::{Member, Replicas, ReplicasOptions, Sentinels, SentinelsOptions};

use crate::pki::{Authority, When};
use crate::rig::{BOTH, brisk, end, follows_a_changed_password, heals, message, works};

const OF_SERVERS: &str = "hunter2-of-servers";
const OF_SENTINELS: &str = "hunter2-of-sentinels";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_follow_the_primary_over_tls() {
    let authority = Authority::new("sentinels");
    authority.server("DNS:locks.internal", When::Now);
    let (certificate, key) = authority.sign("client-", "DNS:client", When::Now);
    let stranger = Authority::new("stranger");
    let servers =
        ReplicasOptions::default().password(OF_SERVERS).tls(authority.folder()).config("tls-auth-clients yes");
    let bed = Sentinels::start(SentinelsOptions::default().servers(servers).password(OF_SENTINELS)).await;
    let url = bed.url();
    assert!(url.starts_with("rediss-sentinel://"), "another scheme");
    // All members know each other by ports that speak only TLS.
    for member in bed.servers().nodes().iter().chain(bed.sentinels().iter().map(AsRef::as_ref)) {
        assert_ne!(member.addr(), member.server().addr());
        let mut plain = TcpStream::connect(member.addr()).expect("it listens");
        plain.write_all(b"PING\r\n").expect("it reads");
        plain.set_read_timeout(Some(secs(5))).expect("a timeout");
        let mut said = Vec::new();
        let _ = plain.read_to_end(&mut said);
        assert!(!said.starts_with(b"+PONG"), "{}: {said:?}", member.addr());
    }
    let of_sentinels = || Tls::new().ca_file(authority.file("ca.pem")).server_name("locks.internal");
    let of_servers = || of_sentinels().client_certificate(&certificate, &key);
    for direct in BOTH {
        let builder =
            |tls: Tls| -> Builder { brisk(&url, direct).sentinel_login(Credentials::password(OF_SENTINELS)).tls(tls) };
        let right = || builder(of_servers()).sentinel_tls(of_sentinels());
        works(right()).await;
        // The servers' TLS options also apply to sentinels.
        works(builder(of_servers())).await;
        for (builder, part) in [
            (builder(of_servers()).sentinel_tls(of_sentinels().ca_file(stranger.file("ca.pem"))), "not trusted"),
            (builder(of_servers().ca_file(stranger.file("ca.pem"))).sentinel_tls(of_sentinels()), "not trusted"),
            (
                builder(of_servers()).sentinel_tls(of_sentinels().server_name("other")),
                "not for other, but for locks.internal",
            ),
            (
                builder(of_servers().server_name("other")).sentinel_tls(of_sentinels()),
                "not for other, but for locks.internal",
            ),
            (builder(of_sentinels()), "asks for a client certificate"),
        ] {
            let said = message(builder).await;
            assert!(said.contains("TLS: ") && said.contains(part), "{said}");
        }
        let fails = || async { Err::<Credentials, _>(std::io::Error::other("the token service is away")) };
        let said = message(right().credentials(fails)).await;
        assert!(said.contains("the token service is away"), "{said}");
        let said = message(right().credentials(std::future::pending::<std::io::Result<Credentials>>)).await;
        assert!(said.contains("does not answer"), "{said}");
        let client = right().connect().await.unwrap();
        heals(&client, "a").await;
        bed.failover().await;
        heals(&client, "a").await;
        end([client]).await;
        bed.whole().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicated_servers_acknowledge_over_tls_and_clients_use_a_changed_password() {
    let authority = Authority::new("replicated");
    authority.server("IP:127.0.0.1", When::Now);
    let servers = Replicas::start(ReplicasOptions::default().replicas(1).tls(authority.folder())).await;
    let url = servers.url();
    assert!(url.starts_with("rediss-replicated://"), "{url}");
    let admins: Vec<_> = servers.nodes().iter().map(Member::admin).collect();
    for direct in BOTH {
        let builder = brisk(&url, direct).tls(Tls::new().ca_file(authority.file("ca.pem")));
        follows_a_changed_password(&admins, builder.clone().acks(Acks::Off), &["a".to_owned()]).await;

        let builder = builder.acks(Acks::AtLeast(1));
        let client = builder.clone().connect().await.unwrap();
        let patient = builder.configure(|options| options.ack_timeout = secs(60)).connect().await.unwrap();
        patient.reentrant("acked").lock().await.unwrap().unlock().await.unwrap();
        assert!(admins[servers.primary()].calls("wait").await > 0, "nobody has waited for the replica");
        let replica = servers.node(1 - servers.primary());
        replica.stop();
        let refused = client.reentrant("acked").try_lock().await;
        assert!(matches!(refused, Err(Error::Replicas { got: 0, wanted: 1, .. })), "{refused:?}");
        replica.cont();
        heals(&client, "a").await;
        end([client, patient]).await;
    }
}
