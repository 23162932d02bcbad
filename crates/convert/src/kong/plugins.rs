//! The plugins that apply to a request: of each name, only the most specific one.

use super::model::{Model, Scope};

/// The sender of a request: a consumer, with its groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sender<'n> {
    pub(super) consumer: Option<usize>,
    pub(super) groups: Vec<&'n str>,
}

/// Returns the position of the plugin with this name that applies to a route and a sender: the first one in the order of
/// precedence that Kong documents.
pub(super) fn applying<'n>(model: &Model<'n>, name: &'n str, route: usize, sender: &Sender<'n>) -> Option<usize> {
    scopes(route, model.routes[route].service, sender).find_map(|scope| model.scopes.get(&(name, scope)).copied())
}

/// Iterates over the scopes that a request belongs to, the most specific first.
fn scopes<'s, 'n>(
    route: usize,
    service: Option<usize>,
    sender: &'s Sender<'n>,
) -> impl Iterator<Item = Scope<'n>> + use<'s, 'n> {
    /// Whether a scope has a consumer or a group, a route and a service.
    const ORDER: [(Client, bool, bool); 12] = [
        (Client::Consumer, true, true),
        (Client::Group, true, true),
        (Client::Consumer, true, false),
        (Client::Consumer, false, true),
        (Client::Group, true, false),
        (Client::Group, false, true),
        (Client::Any, true, true),
        (Client::Consumer, false, false),
        (Client::Group, false, false),
        (Client::Any, true, false),
        (Client::Any, false, true),
        (Client::Any, false, false),
    ];
    ORDER.into_iter().filter(move |(_, _, of_service)| !of_service || service.is_some()).flat_map(
        move |(client, of_route, of_service)| {
            let scope =
                Scope { service: service.filter(|_| of_service), route: of_route.then_some(route), ..Scope::default() };
            let clients: Vec<_> = match client {
                Client::Any => vec![scope],
                Client::Consumer => {
                    sender.consumer.map(|consumer| Scope { consumer: Some(consumer), ..scope }).into_iter().collect()
                }
                Client::Group => sender.groups.iter().map(|group| Scope { group: Some(*group), ..scope }).collect(),
            };
            clients
        },
    )
}

/// Whose requests a plugin applies to.
#[derive(Clone, Copy, Debug)]
enum Client {
    Any,
    Consumer,
    Group,
}
