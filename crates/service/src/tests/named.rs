//! The bucket of a limit that a program names is the bucket of a descriptor.

use super::*;

/// Returns the name of the bucket that a descriptor takes permits from.
fn of_descriptor(domain: &Domain, text: &str) -> BucketId {
    let charges = domain.charges(&call([descriptor(text)]));
    charges.charges.as_slice()[0].bucket_id()
}

fn named(domain: &Domain, name: &str, texts: &[&str]) -> Result<BucketId, String> {
    match domain.named_bucket(&domain.paths(), name, texts) {
        Ok(NamedBucket::Bucket { limit, client, position }) => {
            assert_eq!(domain.limits()[position].name, limit.name);
            Ok((limit.limiter.name.clone(), client))
        }
        Ok(NamedBucket::Unlimited) => Err("unlimited".to_owned()),
        Ok(NamedBucket::Zero { shadow }) => Err(format!("zero, shadow: {shadow}")),
        Err(error) => Err(error.to_string()),
    }
}

fn domain_of_all_kinds() -> Domain {
    let nested = rule("plan", "free", vec![limited("user", "", 5)]);
    let overall = with(limited("team", "*", 5), |limit| limit.mode = Some(tidegate_limit::Mode::Overall));
    let named = with(limited("path", "/v1/*", 5), |limit| limit.limit_name = Some("paths".to_owned()));
    let unlimited = Rule { limit: Some(RuleLimit::new(Rate::Unlimited)), ..rule("open", "", Vec::new()) };
    let zero = with(limited("shut", "", 0), |limit| limit.shadow = true);
    let all = [limited("key", "", 5), limited("key", "one", 5), nested, overall, named, limited("h_*", "", 5)];
    domain(&all.into_iter().chain([unlimited, zero, limited("closed", "", 0)]).collect::<Vec<_>>())
}

#[test]
fn named_bucket_is_the_bucket_of_a_descriptor() {
    let domain = domain_of_all_kinds();
    for (name, texts, text) in [
        ("key", &["alice"][..], "key=alice"),
        ("key=one", &[], "key=one"),
        ("plan=free.user", &["alice"], "plan=free,user=alice"),
        ("team=*", &[], "team=red"),
        ("paths", &["/v1/a"], "path=/v1/a"),
        ("h_*", &["h_a", "x"], "h_a=x"),
    ] {
        assert_eq!(named(&domain, name, texts), Ok(of_descriptor(&domain, text)), "{name}");
    }
}

#[test]
fn texts_of_no_descriptor_are_errors() {
    let domain = domain_of_all_kinds();
    let error = |name: &str, texts: &[&str]| named(&domain, name, texts).expect_err("an error");
    assert_eq!(error("none", &[]), "the domain has no limit of this name");
    assert_eq!(error("key", &[]), "the limit identifies clients by key: 1 value(s) needed, 0 given");
    assert_eq!(error("key", &["a", "b"]), "the limit identifies clients by key: 1 value(s) needed, 2 given");
    assert_eq!(error("team=*", &["red"]), "the limit is OVERALL: all clients share its bucket");
    let other = "the limit does not apply to this client: another rule of the domain, or none, matches its values";
    assert_eq!(error("key", &["one"]), other);
    assert_eq!(error("paths", &["/v2/a"]), other);
    assert_eq!(error("open", &["a"]), "unlimited");
    assert_eq!(error("shut", &["a"]), "zero, shadow: true");
    assert_eq!(error("closed", &["a"]), "zero, shadow: false");
}
