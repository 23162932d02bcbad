//! The places of values in a JSON text.

/// A value that a caller wants from a JSON text. The caller selects the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field(pub u8);

/// Places in a JSON text: JSON pointers (RFC 6901). As an extension, the segment `*` matches each element of an array, and
/// each member of an object that no other pointer names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointers {
    nodes: Vec<Node>,
}

/// A JSON pointer that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PointerError {
    /// A pointer is empty, or starts with `/`.
    #[error("`{0}` does not start with `/`")]
    NoSlash(String),
    /// `~` is followed by `0` or `1`.
    #[error("`{0}` has a `~` without `0` or `1`")]
    Tilde(String),
    /// The pointer has the segment `*`, where it must lead to one value.
    #[error("`{0}` has the segment `*`, which is not one value")]
    Any(String),
    /// The scanner compares keys of up to [`MAX_KEY`] bytes.
    #[error("`{0}` has a segment of more than {MAX_KEY} bytes")]
    LongSegment(String),
    /// All pointers together have more segments than this.
    #[error("the pointers have more than {MAX_NODES} segments")]
    TooMany,
}

/// The longest key that the scanner compares, in bytes.
pub const MAX_KEY: usize = 64;

/// The most segments of all pointers.
const MAX_NODES: usize = 256;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Node {
    children: Vec<(Segment, NodeId)>,
    field: Option<Field>,
    /// The strings in this value and below are counted for this field.
    text: Option<Field>,
}

type NodeId = u16;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Any,
    /// A key, and the index that it is in an array.
    Key(Box<[u8]>, Option<u32>),
}

/// The place of one value, as far as pointers know it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    node: Option<NodeId>,
    /// The field for which strings are counted.
    pub(super) text: Option<Field>,
}

impl Default for Pointers {
    fn default() -> Self {
        Self { nodes: vec![Node::default()] }
    }
}

impl Pointers {
    /// Adds the place of a value.
    ///
    /// # Errors
    /// See [`PointerError`].
    pub fn value(mut self, pointer: &str, field: Field) -> Result<Self, PointerError> {
        let node = self.insert(pointer)?;
        self.nodes[node].field = Some(field);
        Ok(self)
    }

    /// Adds a place. The scanner counts the bytes of all strings in its value.
    ///
    /// # Errors
    /// See [`PointerError`].
    pub fn text(mut self, pointer: &str, field: Field) -> Result<Self, PointerError> {
        let node = self.insert(pointer)?;
        self.nodes[node].text = Some(field);
        Ok(self)
    }

    fn insert(&mut self, pointer: &str) -> Result<usize, PointerError> {
        if pointer.is_empty() {
            return Ok(0);
        }
        let segments = pointer.strip_prefix('/').ok_or_else(|| PointerError::NoSlash(pointer.to_owned()))?;
        let mut node = 0;
        for segment in segments.split('/') {
            node = self.child(node, Segment::parse(segment, pointer)?)?;
        }
        Ok(node)
    }

    fn child(&mut self, node: usize, segment: Segment) -> Result<usize, PointerError> {
        if let Some((_, child)) = self.nodes[node].children.iter().find(|(known, _)| *known == segment) {
            return Ok(usize::from(*child));
        }
        let id = self.nodes.len();
        let child = NodeId::try_from(id).ok().filter(|_| id < MAX_NODES).ok_or(PointerError::TooMany)?;
        self.nodes.push(Node::default());
        self.nodes[node].children.push((segment, child));
        Ok(id)
    }

    /// The place of the whole text.
    pub(super) fn root(&self) -> Place {
        self.place(Some(0), None)
    }

    /// The place of a member of an object. A key that is too long is `None`.
    pub(super) fn member(&self, parent: Place, key: Option<&[u8]>) -> Place {
        self.find(parent, |segment| matches!(segment, Segment::Key(known, _) if Some(&**known) == key))
    }

    /// Returns `true` if a pointer names this key in other letters: parsers that ignore case (Go) would take it.
    pub(super) fn is_lookalike(&self, parent: Place, key: &[u8]) -> bool {
        let folded = fold(key);
        let is_other = |known: &[u8]| known != key && fold(known) == folded;
        self.children(parent).iter().any(|(segment, _)| matches!(segment, Segment::Key(known, _) if is_other(known)))
    }

    /// The place of an element of an array.
    pub(super) fn element(&self, parent: Place, index: u32) -> Place {
        self.find(parent, |segment| matches!(segment, Segment::Key(_, known) if *known == Some(index)))
    }

    /// The field of a place, if it has one.
    pub(super) fn field(&self, place: Place) -> Option<Field> {
        self.nodes[usize::from(place.node?)].field
    }

    fn find(&self, parent: Place, matches: impl Fn(&Segment) -> bool) -> Place {
        let children = self.children(parent);
        let child = children.iter().find(|(segment, _)| matches(segment));
        let child = child.or_else(|| children.iter().find(|(segment, _)| *segment == Segment::Any));
        self.place(child.map(|(_, child)| *child), parent.text)
    }

    fn children(&self, place: Place) -> &[(Segment, NodeId)] {
        place.node.map_or(&[], |node| &self.nodes[usize::from(node)].children)
    }

    fn place(&self, node: Option<NodeId>, inherited: Option<Field>) -> Place {
        let own = node.and_then(|node| self.nodes[usize::from(node)].text);
        Place { node, text: own.or(inherited) }
    }
}

impl Place {
    /// Returns `true` if a pointer may lead to a value in this place or below it.
    pub(super) fn has_pointers(self) -> bool {
        self.node.is_some()
    }
}

impl Segment {
    fn parse(segment: &str, pointer: &str) -> Result<Self, PointerError> {
        if segment == "*" {
            return Ok(Self::Any);
        }
        let mut tildes = segment.split('~').skip(1);
        if !tildes.all(|rest| rest.starts_with(['0', '1'])) {
            return Err(PointerError::Tilde(pointer.to_owned()));
        }
        let key = segment.replace("~1", "/").replace("~0", "~");
        if key.len() > MAX_KEY {
            return Err(PointerError::LongSegment(pointer.to_owned()));
        }
        let index = key.parse().ok().filter(|index: &u32| index.to_string() == key);
        Ok(Self::Key(key.into_bytes().into(), index))
    }
}

/// The key in lower case. `ſ` and the Kelvin sign are other letters for `s` and `k`.
fn fold(key: &[u8]) -> String {
    let folded = |letter| match letter {
        'ſ' => 's',
        '\u{212A}' => 'k',
        _ => letter.to_ascii_lowercase(),
    };
    String::from_utf8_lossy(key).chars().map(folded).collect()
}

#[cfg(test)]
mod tests {
    use super::{Field, MAX_KEY, PointerError, Pointers};

    #[test]
    fn pointers_without_meaning_are_errors() {
        let add = |pointer: &str| Pointers::default().value(pointer, Field(0)).map(|_| ());
        assert_eq!(add("usage"), Err(PointerError::NoSlash("usage".to_owned())));
        assert_eq!(add("/a~2"), Err(PointerError::Tilde("/a~2".to_owned())));
        assert_eq!(add("/a~"), Err(PointerError::Tilde("/a~".to_owned())));
        let long = format!("/{}", "k".repeat(MAX_KEY + 1));
        assert_eq!(add(&long), Err(PointerError::LongSegment(long.clone())));
        assert_eq!(add(&"/a".repeat(300)), Err(PointerError::TooMany));
        assert_eq!(add(""), Ok(()));
    }

    #[test]
    fn element_matches_its_index_and_any() {
        let pointers =
            Pointers::default().value("/0", Field(0)).and_then(|all| all.value("/a/*", Field(1))).expect("valid");
        let root = pointers.root();
        assert_eq!(pointers.field(pointers.element(root, 0)), Some(Field(0)));
        assert_eq!(pointers.field(pointers.element(root, 1)), None);
        assert_eq!(pointers.field(pointers.member(root, Some(b"0"))), Some(Field(0)));
        let list = pointers.member(root, Some(b"a"));
        assert_eq!(pointers.field(pointers.element(list, 7)), Some(Field(1)));
        assert_eq!(pointers.field(pointers.member(list, Some(b"other"))), Some(Field(1)));
    }

    #[test]
    fn lookalikes_differ_only_in_their_letters() {
        let pointers = Pointers::default().value("/max_tokens", Field(0)).expect("valid");
        let is_lookalike = |key: &str| pointers.is_lookalike(pointers.root(), key.as_bytes());
        assert!(is_lookalike("Max_Tokens") && is_lookalike("max_to\u{212A}ens") && is_lookalike("max_tokenſ"));
        assert!(!is_lookalike("max_tokens") && !is_lookalike("max_token"));
    }
}
