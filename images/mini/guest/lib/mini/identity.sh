# SPDX-License-Identifier: LGPL-2.1-or-later
# Who the guest is and who may enter: the metadata service's word, and the credentials' before it.

take_identity() {
  credential system.machine_id >/etc/machine-id
  name=$(imds /hostname)
  [ -n "$name" ] || name=$(credential firstboot.hostname)
  hostname "${name:-mini}"
  printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "${name:-mini}" >/etc/hosts
  say "host name ${name:-mini}"
  take_keys
}

# The service lists its keys by number, one a line.
take_keys() {
  mkdir -p -m 700 /root/.ssh
  {
    credential ssh.authorized_keys.root
    for number in $(imds /public-keys/); do
      imds "/public-keys/$number"
      echo
    done
  } | sort -u | sed '/^$/d' >/root/.ssh/authorized_keys
  chmod 600 /root/.ssh/authorized_keys
  say "$(wc -l </root/.ssh/authorized_keys) authorized keys"
  [ -s /root/.ssh/authorized_keys ] || say "nobody may log in"
}
