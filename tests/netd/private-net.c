/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A network namespace for tests of what guests may reach. A local route for everything makes each
 * destination an address of this machine, so that flows really connect; a packet socket on the
 * loopback interface notices what must never have been sent.
 */
#include "private-net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <linux/rtnetlink.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define IPV4_DESTINATION 16 /* offset in the IP header */

typedef struct
{
  struct nlmsghdr head;
  struct rtmsg route;
  char attributes[64];
} RouteRequest;

typedef struct
{
  struct nlmsghdr head;
  struct ifaddrmsg address;
  char attributes[64];
} AddressRequest;

static void
add_attribute (struct nlmsghdr *head, unsigned short type, guint32 value)
{
  struct rtattr *attribute = (struct rtattr *) ((char *) head + NLMSG_ALIGN (head->nlmsg_len));

  attribute->rta_type = type;
  attribute->rta_len = RTA_LENGTH (sizeof value);
  memcpy (RTA_DATA (attribute), &value, sizeof value);
  head->nlmsg_len = NLMSG_ALIGN (head->nlmsg_len) + attribute->rta_len;
}

static gboolean
ask_kernel (struct nlmsghdr *request)
{
  struct
  {
    struct nlmsghdr head;
    struct nlmsgerr error;
    char more[256];
  } answer = { 0 };
  int fd = socket (AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  gboolean done;

  request->nlmsg_flags |= NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE;
  done = fd >= 0 && send (fd, request, request->nlmsg_len, 0) == (gssize) request->nlmsg_len
         && recv (fd, &answer, sizeof answer, 0) >= (gssize) NLMSG_LENGTH (sizeof answer.error);
  if (fd >= 0)
    close (fd);
  errno = done ? -answer.error.error : EIO;
  return done && answer.error.error == 0;
}

static gboolean
be_everywhere (void)
{
  int lo = (int) if_nametoindex ("lo");
  RouteRequest route = {
    .head = { .nlmsg_len = NLMSG_LENGTH (sizeof (struct rtmsg)), .nlmsg_type = RTM_NEWROUTE },
    .route = { .rtm_family = AF_INET,
               .rtm_table = RT_TABLE_LOCAL,
               .rtm_protocol = RTPROT_STATIC,
               .rtm_scope = RT_SCOPE_HOST,
               .rtm_type = RTN_LOCAL },
  };
  AddressRequest address = {
    .head = { .nlmsg_len = NLMSG_LENGTH (sizeof (struct ifaddrmsg)), .nlmsg_type = RTM_NEWADDR },
    .address = { .ifa_family = AF_INET, .ifa_prefixlen = 32, .ifa_index = (guint) lo },
  };

  add_attribute (&address.head, IFA_LOCAL, inet_addr (PRIVATE_NET_HOST));
  add_attribute (&route.head, RTA_OIF, (guint32) lo);
  add_attribute (&route.head, RTA_PREFSRC, inet_addr (PRIVATE_NET_HOST));
  return ask_kernel (&address.head) && ask_kernel (&route.head);
}

static gboolean
raise_loopback (void)
{
  struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
  int fd = socket (AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  gboolean raised = fd >= 0 && ioctl (fd, SIOCSIFFLAGS, &request) == 0;

  if (fd >= 0)
    close (fd);
  return raised;
}

static gboolean
write_file (const char *path, const char *text)
{
  int fd = open (path, O_WRONLY | O_CLOEXEC);
  gboolean written = fd >= 0 && write (fd, text, strlen (text)) == (gssize) strlen (text);

  if (fd >= 0)
    close (fd);
  return written;
}

static gboolean
map_users (uid_t uid, gid_t gid)
{
  g_autofree char *users = g_strdup_printf ("%u %u 1", uid, uid);
  g_autofree char *groups = g_strdup_printf ("%u %u 1", gid, gid);

  return write_file ("/proc/self/uid_map", users) && write_file ("/proc/self/setgroups", "deny")
         && write_file ("/proc/self/gid_map", groups);
}

gboolean
private_net_enter (char **reason)
{
  uid_t uid = getuid ();
  gid_t gid = getgid ();
  g_autofree char *ping_groups = g_strdup_printf ("%u %u", gid, gid);

  if (unshare (CLONE_NEWUSER | CLONE_NEWNET) < 0)
    {
      *reason = g_strdup_printf ("no network namespace: %s", g_strerror (errno));
      return FALSE;
    }
  /* Or the leak check at the end may not look at this process. */
  prctl (PR_SET_DUMPABLE, 1);
  if (!map_users (uid, gid) || !raise_loopback () || !be_everywhere ())
    {
      *reason = g_strdup_printf ("cannot set up a network namespace: %s", g_strerror (errno));
      return FALSE;
    }
  /* As most distributions allow everybody. */
  (void) write_file ("/proc/sys/net/ipv4/ping_group_range", ping_groups);
  return TRUE;
}

int
private_net_watch_forbidden (void)
{
  struct sock_filter code[] = {
    BPF_STMT (BPF_LD | BPF_B | BPF_ABS, IPV4_DESTINATION),
    BPF_JUMP (BPF_JMP | BPF_JEQ | BPF_K, 127, 2, 0),
    BPF_STMT (BPF_LD | BPF_H | BPF_ABS, IPV4_DESTINATION),
    BPF_JUMP (BPF_JMP | BPF_JEQ | BPF_K, 169 << 8 | 254, 0, 1),
    BPF_STMT (BPF_RET | BPF_K, 64),
    BPF_STMT (BPF_RET | BPF_K, 0),
  };
  struct sock_fprog program = { .len = G_N_ELEMENTS (code), .filter = code };
  struct sockaddr_ll address = {
    .sll_family = AF_PACKET,
    .sll_protocol = htons (ETH_P_IP),
    .sll_ifindex = (int) if_nametoindex ("lo"),
  };
  int fd = socket (AF_PACKET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

  g_assert_cmpint (fd, >=, 0);
  g_assert_cmpint (setsockopt (fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program), ==, 0);
  g_assert_cmpint (bind (fd, (struct sockaddr *) &address, sizeof address), ==, 0);
  return fd;
}

guint
private_net_count_forbidden (int witness)
{
  char packet[64];
  guint n = 0;

  while (recv (witness, packet, sizeof packet, 0) >= 0)
    n++;
  g_assert_true (errno == EAGAIN || errno == EWOULDBLOCK);
  return n;
}
