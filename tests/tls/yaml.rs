//! Redisson's YAML for a server with TLS.

use distlock::{Error, RedissonYaml, Tls};

use crate::pki::When;
use crate::rig::{PASSWORD, Secure};

const YAML: &str = "
singleServerConfig:
  address: \"rediss://127.0.0.1:${PORT}\"
  password: \"${PASSWORD}\"
  sslTruststore: file:/etc/ssl/truststore.jks
  sslTruststorePassword: \"${PASSWORD}\"
  sslProtocols: [TLSv1.2, TLSv1.3]
  sslProvider: JDK
";

/// A Java certificate store is refused, and the error names it. If the reader has PEM files, it ignores the store, and
/// trusts only these files.
#[tokio::test]
async fn pem_files_replace_java_truststore() {
    let server = Secure::start("IP:127.0.0.1", When::Now, "no");
    let reader = || {
        RedissonYaml::new().variables([("PORT", server.port.number().to_string()), ("PASSWORD", PASSWORD.to_owned())])
    };
    let refused = reader().read(YAML);
    assert!(
        matches!(&refused, Err(Error::Config { what }) if what.contains("line 5, column 18: singleServerConfig.sslTruststore")),
        "{refused:?}"
    );
    let client = reader().tls(server.tls()).read(YAML).unwrap().into_builder().connect().await.unwrap();
    client.reentrant("x").lock().await.unwrap().unlock().await.unwrap();
    // The platform's authorities did not sign the server's certificate. A missing store does not mean that every server
    // is trusted.
    let lenient = reader().lenient(true).read(YAML).unwrap();
    assert_eq!(lenient.left_out().len(), 1);
    let brisk = |builder: distlock::Builder| builder.connect_timeout(std::time::Duration::from_secs(2));
    assert!(brisk(lenient.into_builder()).connect().await.is_err());
    let verified = YAML.to_owned() + "  sslVerificationMode: NONE\n";
    let lenient = reader().lenient(true).tls(Tls::new()).read(&verified).unwrap();
    assert_eq!(lenient.left_out()[0].path, "singleServerConfig.sslVerificationMode");
    assert!(brisk(lenient.into_builder()).connect().await.is_err());
}
