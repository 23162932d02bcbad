//! The pictures of `docs/algorithms.md` are what the algorithms decide today.

use std::fs;
use std::path::Path;

#[path = "../../examples/pictures/draw/mod.rs"]
mod draw;

#[test]
fn the_pictures_in_the_repository_are_what_is_drawn_now() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/pictures");
    let pictures = draw::pictures().expect("pictures");
    for (name, picture) in &pictures {
        let kept = fs::read_to_string(folder.join(name)).expect("a picture that is kept");
        assert!(kept == *picture, "{name} is stale: `cargo run --example pictures` draws it anew");
    }
    let kept = fs::read_dir(folder).expect("docs/pictures").count();
    assert_eq!(kept, pictures.len(), "a picture that nothing draws");
}

#[test]
fn each_algorithm_of_rule_files_has_its_picture_on_its_page() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/algorithms.md")).expect("the page");
    for (name, _) in draw::pictures().expect("pictures") {
        assert!(page.contains(&format!("(pictures/{name})")), "{name} is not on the page");
    }
}
