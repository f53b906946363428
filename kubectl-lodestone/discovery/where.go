package discovery

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
)

// findTimeout limits one search.
const findTimeout = 15 * time.Second

// Where says where clusters are looked for: in a domain, or on the networks of this machine.
type Where struct {
	Domain, DNSServer string
	MDNS              bool
}

// AddFlags adds the flags to a flag set.
func (w *Where) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&w.Domain, "domain", w.Domain, "domain whose DNS zone has the announcements, such as fabric.example.com")
	flags.StringVar(&w.DNSServer, "dns-server", w.DNSServer, "DNS server that is asked, <host>:<port>; default: those of the system")
	flags.BoolVar(&w.MDNS, "mdns", w.MDNS, "ask by multicast on the networks of this machine (mDNS, over IPv4) in place of a domain")
}

// Given says that one of the flags was given.
func (w *Where) Given() bool { return w.Domain != "" || w.DNSServer != "" || w.MDNS }

// Check returns an error unless the flags name one place.
func (w *Where) Check() error {
	switch {
	case w.MDNS && w.Domain != "":
		return cli.Misuse("--mdns asks on the networks of this machine, and --domain in a domain: give one of them")
	case w.MDNS && w.DNSServer != "":
		return cli.Misuse("--mdns asks no DNS server: leave --dns-server out, or give --domain")
	case !w.MDNS && w.Domain == "":
		return cli.Misuse("say where clusters announce themselves: give --domain, or --mdns for the networks of this machine")
	}
	if err := checkDomain(w.Domain); err != nil {
		return err
	}
	if w.DNSServer == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(w.DNSServer)
	if number, bad := strconv.Atoi(port); err != nil || bad != nil || host == "" || number < 1 || number > 65535 {
		return cli.Misuse("--dns-server %q is not an address: give <host>:<port>, such as 192.0.2.53:53", w.DNSServer)
	}
	return nil
}

func checkDomain(domain string) error {
	if domain != "" && len(validation.IsDNS1123Subdomain(strings.TrimSuffix(domain, "."))) > 0 {
		return cli.Misuse("--domain %q is not a domain: give one such as fabric.example.com", domain)
	}
	return nil
}

// String names the place.
func (w *Where) String() string {
	if w.MDNS {
		return "the networks of this machine"
	}
	return "domain " + strings.TrimSuffix(w.Domain, ".")
}

// Find returns what is announced there. Check must have found nothing wrong.
func (w *Where) Find(ctx context.Context) (Found, error) {
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	if w.MDNS {
		return askNetworks(ctx)
	}
	return askServers(ctx, w.Domain, w.DNSServer)
}

// FindOne returns the announcements of a name: several if somebody contradicts, at most maxTexts.
func (w *Where) FindOne(ctx context.Context, name string) ([]Announcement, error) {
	found, err := w.Find(ctx)
	if err != nil {
		return nil, err
	}
	var all []Announcement
	var names []string
	for _, one := range found.Announcements {
		names = append(names, one.Name)
		if one.Name == name {
			all = append(all, one)
		}
	}
	switch {
	case len(all) > 0:
		return all, nil
	case len(names) == 0:
		return nil, fmt.Errorf("no cluster announces itself in %s: ask the owner of %q where it does, or for a kubeconfig, and give "+
			"--remote-context", w, name)
	}
	// Several may announce themselves by one name.
	others := cli.ThereAre(slices.Compact(names), name, "kubectl lodestone discover")
	return nil, fmt.Errorf("no cluster announces itself as %q in %s; there %s", name, w, others)
}
