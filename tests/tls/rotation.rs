//! Certificates and keys that are replaced while clients live. The next connection uses the new files. If it cannot,
//! the error names the problem.

use std::fs;
use std::sync::Arc;

use crate::pki::{Authority, When};
use crate::rig::{BOTH, Secure, end, heals, told};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_authority_is_replaced_without_a_restart() {
    for direct in BOTH {
        let server = Secure::start("IP:127.0.0.1", When::Now, "no");
        let trusted = server.authority.file("trusted.pem");
        fs::copy(server.ca(), &trusted).unwrap();
        let client = server.builder(direct, distlock::Tls::new().ca_file(&trusted)).connect().await.unwrap();
        heals(&client, "a").await;

        // Open connections are not affected.
        let successor = Arc::new(Authority::new("successor"));
        successor.server("IP:127.0.0.1", When::Now);
        server.use_files_of(&successor).await;
        heals(&client, "a").await;

        server.kill_clients().await;
        told(&client, "a", "an authority that is not trusted").await;
        // Both authorities are trusted, as during a step-by-step change of servers.
        let both = fs::read_to_string(server.ca()).unwrap() + &fs::read_to_string(successor.file("ca.pem")).unwrap();
        fs::write(&trusted, both).unwrap();
        heals(&client, "a").await;

        // The file is missing for a while, and the error names it.
        let aside = server.authority.file("aside.pem");
        fs::rename(&trusted, &aside).unwrap();
        server.kill_clients().await;
        told(&client, "a", trusted.to_str().unwrap()).await;
        fs::rename(&aside, &trusted).unwrap();
        heals(&client, "a").await;
        end([client]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_certificate_is_replaced_without_a_restart() {
    for direct in BOTH {
        let server = Secure::start("IP:127.0.0.1", When::Now, "yes");
        let (certificate, key) = server.authority.sign("client-", "DNS:client", When::Now);
        let (old, old_key) = server.authority.sign("old-", "DNS:client", When::Past);
        let tls = server.tls().client_certificate(&certificate, &key);
        let client = server.builder(direct, tls).connect().await.unwrap();
        heals(&client, "a").await;
        let fresh = [fs::read(&certificate).unwrap(), fs::read(&key).unwrap()];

        // Between the two writes, certificate and key do not match.
        fs::copy(&old, &certificate).unwrap();
        server.kill_clients().await;
        told(&client, "a", "is not that of the certificate").await;
        fs::copy(&old_key, &key).unwrap();
        told(&client, "a", "refuses the client certificate: it has expired").await;
        fs::write(&certificate, &fresh[0]).unwrap();
        fs::write(&key, &fresh[1]).unwrap();
        heals(&client, "a").await;
        end([client]).await;
    }
}
