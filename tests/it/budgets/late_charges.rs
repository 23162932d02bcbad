//! Late charges of budgets: permits that a gateway has granted while Redis was unreachable.

use std::slice::from_ref;
use std::sync::Arc;

use deadpool_redis::redis::{Commands, cmd};
use tidegate_limit::{Algorithm, Mode, Quota};
use tidegate_rules::charge::{Charge, ChargeKind, Limiter, OnLost};

use crate::support::redis::RedisServer;

/// Returns the script with the algorithms that budgets are built from.
fn script() -> String {
    let file = |name: &str| std::fs::read_to_string(format!("lua/{name}.lua")).expect("a script");
    let scoped = |name: &str| format!("do\n{}end\n", file(name));
    let algorithms = ["token_bucket", "gcra", "gcra_warm_up", "fixed_window", "sliding_window"].map(scoped).concat();
    let operations = ["waiting", "admit", "operations"].map(file).join("\n");
    let (shared, budgets) = (file("shared"), scoped("budgets"));
    format!("local algorithms = {{}}\n{shared}\n{algorithms}{operations}\n{budgets}return operations[ARGV[1]](ARGV)")
}

/// Regression test: a late charge of an event a minute ago shortened the leases of all gateways by a minute. They ended, and
/// their reservations were charged.
#[tokio::test]
async fn late_charge_keeps_open_reservations() {
    let Some(redis) = RedisServer::start() else { return };
    let store = redis.store();
    let quota = Quota::new(100, 3_600_000, Algorithm::TokenBucket).expect("a quota");
    let limiter = Limiter::new("{a}:l".to_owned(), Mode::Overall, quota).with_budget(OnLost::Charge);
    let check = Charge { kind: ChargeKind::Check, ..Charge::new(Arc::new(limiter), None, 0) };
    let reserved = Charge { kind: ChargeKind::Reserve(store.new_reservation()), permits: 40, ..check.clone() };
    assert!(store.take(from_ref(&reserved)).await.expect("a decision").granted());
    let mut call = cmd("EVAL");
    call.arg(script()).arg(4).arg(&["{a}:l", "{a}:l:@holders", "{a}:l:@reserved", "{a}:owed:1"]);
    call.arg("charge_later").arg("budget_token_bucket 15000 1 100 3600000 1 ").arg("1 10 60000").arg(&[7_u8; 8]);
    assert_eq!(call.query::<i64>(&mut redis.connection()).expect("a reply"), 1);
    let remaining = async || store.take(from_ref(&check)).await.expect("a decision").decisions[0].remaining;
    assert_eq!(remaining().await, 100 - 10 - 40);
    store.take(&[reserved.settled(5).expect("a reservation")]).await.expect("a decision");
    assert_eq!(remaining().await, 100 - 10 - 5);
    let holders: usize = redis.connection().hlen("{a}:l:@holders").expect("a number");
    assert_eq!(holders, 0, "a lease has ended");
}
