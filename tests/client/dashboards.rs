//! Metrics as operators see them: descriptions, units, zeros at the start, and the Prometheus names in the files of
//! `docs/operations/`.

use std::collections::{BTreeMap, BTreeSet};

use bed::{Bed, ms};
use distlock::Flavour;
use distlock_support::RedisServer;
use distlock_support::pages::anchors;
use metrics::Unit;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use serde_json::Value;

const GUIDE: &str = include_str!("../../docs/observability.md");
const PLAYBOOK: &str = include_str!("../../docs/playbook.md");
const DASHBOARD: &str = include_str!("../../docs/operations/distlock.json");
const ALERTS: &str = include_str!("../../docs/operations/alerts.yaml");

/// Labels that Prometheus adds to each series of a target.
const TARGET: [&str; 2] = ["job", "instance"];

/// The labels of each exported series, by the name of the series.
type Series = BTreeMap<String, BTreeSet<String>>;

async fn on_a_server(body: impl AsyncFnOnce(&Bed)) {
    bed::run_on(RedisServer::start(), |client, name| client.lock(Flavour::Reentrant, name), body).await;
}

/// Acquires, finds the lock busy, waits in vain and releases, so that every metric has a value.
async fn use_a_lock(bed: &Bed) {
    let (one, two) = (bed.still_client().await, bed.still_client().await);
    let (lock, other) = (one.reentrant("metrics"), two.reentrant("metrics"));
    let guard = lock.lock().await.unwrap();
    assert!(other.try_lock().await.unwrap().is_none());
    assert!(lock.lock_for(ms(60)).await.unwrap().is_none());
    guard.unlock().await.unwrap();
}

/// The metrics that the guide lists.
fn listed() -> BTreeSet<&'static str> {
    let rows = GUIDE.lines().filter(|line| line.starts_with("| `distlock_"));
    rows.map(|row| row.split('`').nth(1).unwrap()).collect()
}

/// The buckets that the guide recommends.
fn buckets() -> Vec<f64> {
    let (_, rest) = GUIDE.split_once("let buckets = [").expect("the guide names buckets");
    let (numbers, _) = rest.split_once(']').unwrap();
    numbers.split(',').map(|number| number.trim().parse().unwrap()).collect()
}

/// Reads what the exporter renders.
fn series(text: &str) -> Series {
    let mut series = Series::new();
    for line in text.lines().filter(|line| line.starts_with("distlock_")) {
        let mut parts = line.split(['{', ',', '}', ' ']);
        let labels = series.entry(parts.next().unwrap().to_owned()).or_default();
        labels.extend(parts.filter_map(|part| part.split_once("=\"")).map(|(label, _)| label.to_owned()));
    }
    series
}

const fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The metrics in an expression of PromQL.
fn metrics_in(expr: &str) -> BTreeSet<&str> {
    expr.split(|c: char| !is_word(c)).filter(|word| word.starts_with("distlock_")).collect()
}

/// The labels in an expression of PromQL: of selectors, of `by (..)`, and of Grafana's `label_values(metric, label)`.
fn labels_in(expr: &str) -> BTreeSet<&str> {
    let selectors = expr.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    let groupings = expr.split("by (").skip(1).filter_map(|rest| rest.split(')').next());
    let values = expr.strip_prefix("label_values(").and_then(|rest| rest.rsplit_once(',')).map(|(_, label)| label);
    let lists = selectors.chain(groupings).chain(values).flat_map(|list| list.split(','));
    let labels = lists.filter_map(|item| item.trim().split(|c: char| !is_word(c)).next());
    labels.filter(|label| !label.is_empty()).collect()
}

/// The metrics and labels of an expression that are not exported.
fn unknown(expr: &str, series: &Series) -> Vec<String> {
    let (mut known, mut unknown) = (BTreeSet::from(TARGET), Vec::new());
    for metric in metrics_in(expr) {
        match series.get(metric) {
            Some(labels) => known.extend(labels.iter().map(String::as_str)),
            None => unknown.push(format!("no metric {metric}: {expr}")),
        }
    }
    let labels = labels_in(expr).into_iter().filter(|label| !known.contains(label));
    unknown.extend(labels.map(|label| format!("no label {label}: {expr}")));
    unknown
}

/// The items of a list in a file, and none if it is absent.
fn items<'a>(file: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    file.pointer(list).and_then(Value::as_array).into_iter().flatten()
}

/// The dashboard's expressions with their legends, and the queries of its variables.
fn shown(dashboard: &Value) -> Vec<(&str, &str)> {
    let targets = items(dashboard, "/panels").flat_map(|panel| items(panel, "/targets"));
    let targets = targets.map(|target| (target["expr"].as_str().unwrap(), target["legendFormat"].as_str().unwrap()));
    let variables = items(dashboard, "/templating/list").map(|variable| (variable["query"].as_str().unwrap(), ""));
    targets.chain(variables).collect()
}

fn rules(alerts: &Value) -> Vec<&Value> {
    items(alerts, "/groups").flat_map(|group| items(group, "/rules")).collect()
}

#[tokio::test]
async fn counters_of_failures_are_zero_once_a_client_is_connected() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    // This runtime has one thread, and the recorder records this thread.
    let _recording = metrics::set_default_local_recorder(&recorder);
    let mut seen = BTreeMap::new();
    on_a_server(async |bed| {
        let _client = bed.still_client().await;
        for (key, _, _, value) in snapshotter.snapshot().into_vec() {
            let flavour: String = key.key().labels().map(|label| label.value()).collect();
            seen.insert((key.key().name().to_owned(), flavour), value);
        }
    })
    .await;

    let mut expected = BTreeMap::new();
    for flavour in Flavour::ALL.iter().map(|flavour| flavour.as_str()).chain(["permits"]) {
        for counter in ["timed_out", "acquire_failed", "lost", "release_failed"] {
            expected.insert((format!("distlock_{counter}_total"), flavour.to_owned()), DebugValue::Counter(0));
        }
    }
    for counter in ["renewals", "renewals_failed"] {
        expected.insert((format!("distlock_{counter}_total"), String::new()), DebugValue::Counter(0));
    }
    expected.insert(("distlock_waiters".to_owned(), String::new()), DebugValue::Gauge(0_f64.into()));
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn every_metric_has_a_description_and_a_unit() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recording = metrics::set_default_local_recorder(&recorder);
    on_a_server(use_a_lock).await;

    let mut seen = BTreeSet::new();
    for (key, unit, description, _) in snapshotter.snapshot().into_vec() {
        let name = key.key().name().to_owned();
        let expected = if name.ends_with("_seconds") { Unit::Seconds } else { Unit::Count };
        assert_eq!(unit, Some(expected), "unit of {name}");
        assert!(description.is_some_and(|text| text.ends_with('.')), "{name} has no description");
        seen.insert(name);
    }
    let listed: BTreeSet<_> = listed().into_iter().map(str::to_owned).collect();
    assert_eq!(seen, listed);
}

/// The red control of the next test.
#[test]
fn unknown_metrics_and_labels_are_found() {
    let series = series("distlock_lost_total{flavour=\"fair\"} 0\ndistlock_waiters 1\n");
    for right in [
        "sum by (job, flavour) (rate(distlock_lost_total{flavour=~\"$flavour\", job=\"a\"}[5m])) > 0",
        "label_values(distlock_lost_total{job=~\"$job\"}, flavour)",
        "distlock_waiters",
    ] {
        assert_eq!(unknown(right, &series), [""; 0]);
    }
    for wrong in [
        "rate(distlock_lost[5m])",
        "distlock_lost_total{name=\"orders\"}",
        "sum by (pod) (distlock_lost_total)",
        "label_values(distlock_lost_total, outcome)",
        "sum by (flavour) (distlock_waiters)",
    ] {
        assert_eq!(unknown(wrong, &series).len(), 1, "{wrong}");
    }
}

#[tokio::test]
async fn dashboard_and_alerts_use_only_exported_metrics_and_labels() {
    let builder = PrometheusBuilder::new();
    let builder = builder.set_buckets_for_metric(Matcher::Prefix("distlock_".to_owned()), &buckets()).unwrap();
    let recorder = builder.build_recorder();
    let exporter = recorder.handle();
    let _recording = metrics::set_default_local_recorder(&recorder);
    on_a_server(use_a_lock).await;
    let series = series(&exporter.render());

    let dashboard: Value = serde_json::from_str(DASHBOARD).unwrap();
    let alerts: Value = serde_saphyr::from_str(ALERTS).unwrap();
    let (shown, rules) = (shown(&dashboard), rules(&alerts));
    let watched: Vec<_> = rules.iter().map(|rule| rule["expr"].as_str().unwrap()).collect();
    let exprs = shown.iter().map(|(expr, _)| *expr).chain(watched.iter().copied());
    let unknown: Vec<_> = exprs.flat_map(|expr| unknown(expr, &series)).collect();
    assert!(unknown.is_empty(), "{unknown:#?}\nexported: {series:#?}");
    assert!(watched.iter().all(|expr| !metrics_in(expr).is_empty()), "an alert without a metric");

    for (expr, legend) in &shown {
        let labels = legend.split("{{").skip(1).filter_map(|rest| rest.split("}}").next());
        let lacking: Vec<_> = labels.filter(|label| !labels_in(expr).contains(label)).collect();
        assert!(lacking.is_empty(), "the legend {legend:?} names labels that the result does not have: {expr}");
    }
    let base = |metric: &str| metric.trim_end_matches("_bucket").to_owned();
    let drawn: BTreeSet<_> = shown.iter().flat_map(|(expr, _)| metrics_in(expr)).map(base).collect();
    let missing: Vec<_> = listed().into_iter().filter(|metric| !drawn.contains(*metric)).collect();
    assert!(missing.is_empty(), "the dashboard does not show {missing:?}");
}

#[test]
fn every_alert_names_a_section_of_the_playbook() {
    let headings: String = PLAYBOOK.split_inclusive('\n').filter(|line| line.starts_with("## ")).collect();
    let sections = anchors(&headings);
    let alerts: Value = serde_saphyr::from_str(ALERTS).unwrap();
    let rules = rules(&alerts);
    assert!(rules.len() > 5, "{rules:?}");
    for rule in rules {
        let alert = rule["alert"].as_str().unwrap();
        assert!(matches!(rule["labels"]["severity"].as_str(), Some("critical" | "warning")), "severity of {alert}");
        assert!(rule["annotations"]["summary"].is_string(), "summary of {alert}");
        let page = rule["annotations"]["playbook"].as_str().and_then(|page| page.strip_prefix("docs/playbook.md#"));
        assert!(page.is_some_and(|section| sections.contains(section)), "{alert} names no section: {page:?}");
    }
}
