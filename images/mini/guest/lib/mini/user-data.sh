# SPDX-License-Identifier: LGPL-2.1-or-later
# The user-data of the first boot. It may hold secrets: the console learns its size alone.
#
# As Ignition does it: on an answer of 500 and above (not attested yet), or none, it asks again, later and
# later, for two minutes. An empty one (204) means that there is no user-data.

fetch_user_data() {
  case " $(cat /proc/cmdline) " in *' ignition.firstboot '*) ;; *) return 0 ;; esac
  new=$STATE/user-data.new
  pause=200
  waited=0
  while ! (umask 077 && fetch "$new" "$IMDS/user-data") 2>/run/user-data.error; do
    error=$(cat /run/user-data.error)
    rm -f "$new"
    case $error in *'HTTP/1.'?' 5'*) ;; *'HTTP/1.'*) waited=120000 ;; esac
    if [ "$waited" -ge 120000 ]; then
      say "user-data: ${error:-no answer}"
      return 1
    fi
    [ "$waited" -gt 0 ] || say "user-data: waiting (${error:-no answer})"
    usleep "${pause}000"
    waited=$((waited + pause))
    pause=$((pause * 2))
    [ "$pause" -le 5000 ] || pause=5000
  done
  mv "$new" "$STATE/user-data"
  sync
  say "user-data: $(wc -c <"$STATE/user-data") bytes"
}
