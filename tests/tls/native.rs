//! TLS by the platform's library, which is used if it is built in: `cargo test --features native-tls,rustls --test tls
//! native`.

use bed::secs;
use distlock::{Error, Tls};

use crate::pki::{Authority, When};
use crate::rig::{BOTH, Secure, failure, message, refusal, works};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_files_and_server_name_are_applied() {
    let server = Secure::start("DNS:redis.internal", When::Now, "yes");
    let expired = Secure::start("IP:127.0.0.1", When::Past, "no");
    let (certificate, key) = server.authority.sign("client-", "DNS:client", When::Now);
    let stranger = Authority::new("stranger");
    for direct in BOTH {
        let right = || server.tls().server_name("redis.internal").client_certificate(&certificate, &key);
        works(server.builder(direct, right())).await;
        for (builder, part) in [
            (server.builder(direct, right().ca_file(stranger.file("ca.pem"))), "an authority that is not trusted"),
            (server.builder(direct, Tls::new()), "an authority that is not trusted"),
            (server.builder(direct, right().server_name("other")), "is not for the name"),
            (expired.builder(direct, expired.tls()), "the server's certificate has expired"),
        ] {
            let said = message(builder).await;
            assert!(said.contains("TLS: ") && said.contains(part), "{said}");
        }
        // The server refuses the client after the handshake, with or without an error.
        let unknown = server.builder(direct, server.tls().server_name("redis.internal"));
        assert!(matches!(failure(unknown, secs(6)).await, Error::Connection { .. } | Error::Timeout { .. }));
        for file in ["none.pem", "key.pem"] {
            let error = refusal(server.builder(direct, right().ca_file(server.authority.file(file)))).await;
            assert!(matches!(&error, Error::Config { what } if what.contains(file)), "{error:?}");
        }
    }
}
