// Package discovery finds clusters that announce themselves by DNS-SD (RFC 6763), and lets a cluster do so: the commands announce and
// discover, and how peer --discovered finds an address. Whoever may write into a domain, or is on the same network, can announce
// anything: what is found here is shown, and trusted by nobody.
// announcement.go has what is announced, and what of an answer is taken for an announcement at all, where.go the flags that say where to
// look, unicast.go and multicast.go the two ways to ask, responder.go what answers questions by multicast.
package discovery

import (
	"cmp"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/miekg/dns"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// service is the type of service by which clusters announce themselves.
const service = "_lodestone._tcp"

// Announcement is what a cluster, or somebody else, says of a cluster.
type Announcement struct {
	Name string `json:"name"`
	// Server is the address of the API server: https://<host>:<port>.
	Server string `json:"server"`
	// CAHash names the certificate authority of the server, as cli.AuthorityHash does.
	CAHash string `json:"caHash"`
	// Version is that of Kubernetes, UID that of namespace kube-system.
	Version string `json:"version,omitempty"`
	UID     string `json:"uid,omitempty"`
	// Classes are the storage classes that the cluster offers.
	Classes []string `json:"classes,omitempty"`
}

// Most of what is announced that is read.
const (
	// maxNames is how many clusters one domain can have, maxTexts how many announcements one name.
	maxNames, maxTexts = 100, 8
	maxClasses         = 16
	maxServer          = 200
	// maxText is the length of one text of a TXT record.
	maxText = 255
)

// Patterns of what is announced: nothing else is shown or used.
var (
	version = regexp.MustCompile(`^v[0-9][0-9A-Za-z.+-]{0,40}$`)
	uid     = regexp.MustCompile(`^[0-9A-Za-z-]{1,64}$`)
	host    = regexp.MustCompile(`^[0-9A-Za-z.:-]{1,150}$`)
)

// validName says whether a RemoteCluster can have the name.
func validName(name string) bool {
	return name != keys.Home && len(validation.IsDNS1123Label(name)) == 0
}

// server returns an address of an API server as it is announced, with its port; empty for what is none. An address with a path is none:
// whoever announces that could choose another cluster behind the same host.
func server(text string) string {
	address, err := url.Parse(text)
	if err != nil || len(text) > maxServer || address.Scheme != "https" || address.User != nil || strings.Trim(address.Path, "/") != "" ||
		address.RawQuery != "" || address.Fragment != "" || !host.MatchString(address.Hostname()) {
		return ""
	}
	port, err := strconv.ParseUint(cmp.Or(address.Port(), "443"), 10, 16)
	if err != nil {
		return ""
	}
	name := address.Hostname()
	if strings.Contains(name, ":") {
		name = "[" + name + "]"
	}
	return "https://" + name + ":" + strconv.FormatUint(port, 10)
}

// texts are the texts of the TXT record. Classes for which there is no room are left out.
func (a Announcement) texts() []string {
	classes := "classes="
	for i, class := range a.Classes {
		if i > 0 {
			class = "," + class
		}
		if i == maxClasses || len(classes)+len(class) > maxText {
			break
		}
		classes += class
	}
	return []string{"txtvers=1", "server=" + a.Server, "ca=" + a.CAHash, "version=" + a.Version, "uid=" + a.UID, classes}
}

// read returns the announcement of a name in the texts of a TXT record; false if there is none that can be used.
func read(name string, texts []string) (Announcement, bool) {
	a, seen := Announcement{Name: name}, map[string]bool{}
	for _, text := range texts {
		key, value, _ := strings.Cut(text, "=")
		key = strings.ToLower(key)
		if seen[key] { // RFC 6763: the first one counts
			continue
		}
		seen[key] = true
		switch {
		case key == "server":
			a.Server = server(value)
		case key == "ca" && cli.IsAuthorityHash(value):
			a.CAHash = value
		case key == "version" && version.MatchString(value):
			a.Version = value
		case key == "uid" && uid.MatchString(value):
			a.UID = value
		case key == "classes":
			for class := range strings.SplitSeq(value, ",") {
				if len(a.Classes) < maxClasses && len(validation.IsDNS1123Subdomain(class)) == 0 {
					a.Classes = append(a.Classes, class)
				}
			}
		}
	}
	return a, validName(name) && a.Server != "" && a.CAHash != ""
}

// zone is the name of the service in a domain.
func zone(domain string) string { return dns.CanonicalName(service + "." + domain) }

// records are what a DNS server of the domain says of the cluster. SRV, and the address of its host if there is one, are for other tools
// that look for services: discover takes the address from TXT, since the server's certificate is for that.
func (a Announcement) records(domain string, ttl uint32) []dns.RR {
	header := func(name string, kind uint16) dns.RR_Header {
		return dns.RR_Header{Name: name, Rrtype: kind, Class: dns.ClassINET, Ttl: ttl}
	}
	instance := a.Name + "." + zone(domain)
	address, _ := url.Parse(a.Server) // server has written it
	target := dns.CanonicalName(address.Hostname())
	ip, notIP := netip.ParseAddr(address.Hostname())
	if notIP == nil {
		target = dns.CanonicalName("lodestone-" + a.Name + "." + domain)
	}
	port, _ := strconv.ParseUint(address.Port(), 10, 16)
	all := []dns.RR{
		&dns.PTR{Hdr: header(zone(domain), dns.TypePTR), Ptr: instance},
		&dns.SRV{Hdr: header(instance, dns.TypeSRV), Port: uint16(port), Target: target},
		&dns.TXT{Hdr: header(instance, dns.TypeTXT), Txt: a.texts()},
	}
	switch {
	case notIP != nil:
	case ip.Is4():
		all = append(all, &dns.A{Hdr: header(target, dns.TypeA), A: ip.AsSlice()})
	default:
		all = append(all, &dns.AAAA{Hdr: header(target, dns.TypeAAAA), AAAA: ip.AsSlice()})
	}
	return all
}

// Found is what was found.
type Found struct {
	Announcements []Announcement
	// LeftOut is how many answers were no announcements that can be used. More: there are more than are read.
	LeftOut int
	More    bool
}

// answers collects what records of answers say. Whatever they say, it keeps no more than maxNames names with maxTexts announcements
// each. Times that records are valid for do not matter: nothing is kept.
type answers struct {
	zone  string
	names map[string]bool
	texts map[string][]Announcement
	// asked are names whose TXT record was there, usable or not.
	asked   map[string]bool
	leftOut int
	more    bool
}

func newAnswers(domain string) *answers {
	return &answers{zone: zone(domain), names: map[string]bool{}, texts: map[string][]Announcement{}, asked: map[string]bool{}}
}

// nameIn returns the name of a cluster in the name of its records; empty for other names.
func (a *answers) nameIn(instance string) string {
	labels := dns.SplitDomainName(instance)
	if len(labels) == 0 || dns.CanonicalName(strings.Join(labels[1:], ".")) != a.zone {
		return ""
	}
	if name := strings.ToLower(labels[0]); validName(name) {
		return name
	}
	return ""
}

// add takes what a record says; records of other names or types say nothing.
func (a *answers) add(record dns.RR) {
	switch record := record.(type) {
	case *dns.PTR:
		if dns.CanonicalName(record.Hdr.Name) != a.zone {
			return
		}
		switch name := a.nameIn(record.Ptr); {
		case name == "":
			a.leftOut++
		case !a.names[name] && len(a.names) == maxNames:
			a.more = true
		default:
			a.names[name] = true
		}
	case *dns.TXT:
		name := a.nameIn(record.Hdr.Name)
		if name == "" {
			return
		}
		if !a.asked[name] && len(a.asked) == maxNames {
			a.more = true
			return
		}
		a.asked[name] = true
		one, usable := read(name, record.Txt)
		same := slices.ContainsFunc(a.texts[name], func(other Announcement) bool { return slices.Equal(one.texts(), other.texts()) })
		switch {
		case !usable:
			a.leftOut++
		case same:
		case len(a.texts[name]) == maxTexts:
			a.more = true
		default:
			a.texts[name] = append(a.texts[name], one)
		}
	}
}

// unasked are names whose TXT record has not come yet.
func (a *answers) unasked() (names []string) {
	for name := range a.names {
		if !a.asked[name] {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// found returns the announcements of all names.
func (a *answers) found() Found {
	f := Found{LeftOut: a.leftOut + len(a.unasked()), More: a.more}
	for name := range a.names {
		f.Announcements = append(f.Announcements, a.texts[name]...)
	}
	slices.SortFunc(f.Announcements, func(x, y Announcement) int {
		return cmp.Or(strings.Compare(x.Name, y.Name), strings.Compare(x.Server, y.Server), strings.Compare(x.CAHash, y.CAHash))
	})
	return f
}
