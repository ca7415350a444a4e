# SPDX-License-Identifier: LGPL-2.1-or-later
# Credentials of the host, from the strings of SMBIOS type 11.

store_credential() {
  case $1 in '' | . | .. | */*) return ;; esac
  cat >"$CREDENTIALS/$1"
}

# Behind five bytes of the structure its strings follow, each with a NUL.
read_credentials() {
  mkdir -p -m 700 "$CREDENTIALS"
  for entry in /sys/firmware/dmi/entries/11-*/raw; do
    [ -e "$entry" ] || continue
    tail -c +6 "$entry" | tr '\0' '\n' | while IFS= read -r line; do
      rest=${line#*:}
      case $line in
        io.systemd.credential:*=*) printf %s "${rest#*=}" | store_credential "${rest%%=*}" ;;
        io.systemd.credential.binary:*=*) printf %s "${rest#*=}" | base64 -d | store_credential "${rest%%=*}" ;;
      esac
    done
  done
}
