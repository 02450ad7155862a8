# shellcheck shell=bash
# Files that `make run` writes for the user to edit. An edited one is never overwritten: what was
# written last is remembered in build/written/, and a file that differs from it is the user's.

# write_unless_edited TEMPLATE TARGET: both relative to the repository root.
write_unless_edited() {
    local template="$REPO/$1" target="$REPO/$2" memory="$REPO/build/written/$2"
    if [ ! -e "$target" ]; then
        say "  wrote $2 (from $1)"
    elif cmp -s "$template" "$target"; then
        say "  $2 is $1 unchanged"
    elif [ -e "$memory" ] && cmp -s "$memory" "$target"; then
        say "  wrote $2 again: $1 changed, and $2 was not edited"
    else
        say "  kept $2 as it is: it was edited (the default is $1)"
        return 0
    fi
    mkdir -p "$(dirname "$memory")"
    cmp -s "$template" "$target" || cp "$template" "$target"
    cp "$template" "$memory"
}
