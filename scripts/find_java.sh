#!/usr/bin/env bash
# Print the JAVA_HOME of a Java that Spark can run on: find_java.sh [NEWEST]
# If there is none, install one when that needs no password; else say the command that does.
set -euo pipefail

oldest=17
newest=${1:-99}

candidates() { # one home a line, the user's own choice first
    echo "${JAVA_HOME:-/none}"
    # The java on the PATH may be a link or a shim; Java itself knows its home.
    java -XshowSettings:properties -version 2>&1 | sed -nE 's/^ *java\.home = //p' || true
    printf '%s\n' /usr/lib/jvm/* /opt/java/* /opt/jdk* \
        /Library/Java/JavaVirtualMachines/*/Contents/Home \
        {/opt/homebrew,/usr/local}/opt/openjdk*/libexec/openjdk.jdk/Contents/Home \
        "${HOME:-}"/.sdkman/candidates/java/*
}

is_usable() { # HOME
    local version
    [[ -x $1/bin/java ]] || return 1
    version=$("$1/bin/java" -version 2>&1 | sed -nE 's/.* version "([0-9]+).*/\1/p' | head -n 1)
    [[ -n $version ]] && ((version >= oldest && version <= newest))
}

print_home() {
    local home
    while read -r home; do
        if is_usable "$home"; then
            echo "$home"
            return
        fi
    done < <(candidates)
    return 1
}

print_install_command() {
    if command -v apt-get >/dev/null; then
        local install="apt-get install -y openjdk"
        echo "sh -c 'apt-get update && { $install-17-jre-headless || $install-21-jre-headless; }'"
    elif command -v dnf >/dev/null; then
        local install="dnf install -y java"
        echo "sh -c '$install-17-openjdk-headless || $install-21-openjdk-headless'"
    elif command -v brew >/dev/null; then
        echo "brew install openjdk@17"
    else
        return 1
    fi
}

print_home && exit

missing="Spark needs Java $oldest or later, and none was found"
[[ $newest = 99 ]] || missing="This Spark needs Java $oldest to $newest, and none was found"

if ! command=$(print_install_command); then
    echo "$missing. Install one and set JAVA_HOME to it." >&2
    exit 1
fi
if [[ $command != brew* && $(id -u) != 0 ]]; then # Homebrew wants the user, the others root
    if ! sudo -n true 2>/dev/null; then
        printf '%s. Install one with\n\n    sudo %s\n\n' "$missing" "$command" >&2
        exit 1
    fi
    command="sudo -n $command"
fi
echo "$missing. Installing one: $command" >&2
bash -c "$command" >&2
print_home || {
    echo "A Java was installed but not found. Set JAVA_HOME to it." >&2
    exit 1
}
