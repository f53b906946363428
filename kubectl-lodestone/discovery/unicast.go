package discovery

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"
)

const (
	// answerTimeout is how long a DNS server has for one answer.
	answerTimeout = 3 * time.Second
	// atOnce is how many questions are open at a time.
	atOnce = 8
	// packet is the largest answer over UDP: one that networks do not cut into pieces. Larger ones come over TCP.
	packet = 1232
)

// resolvers is where a system names its DNS servers.
const resolvers = "/etc/resolv.conf"

// askServers asks a DNS server, or those of the system, for the announcements in a domain.
func askServers(ctx context.Context, domain, server string) (Found, error) {
	servers := []string{server}
	if server == "" {
		config, err := dns.ClientConfigFromFile(resolvers)
		if err != nil || len(config.Servers) == 0 {
			return Found{}, fmt.Errorf("no DNS server is named in %s: give one with --dns-server <host>:<port>", resolvers)
		}
		servers = nil
		for _, one := range config.Servers {
			servers = append(servers, net.JoinHostPort(one, config.Port))
		}
	}
	all := newAnswers(domain)
	records, err := ask(ctx, servers, all.zone, dns.TypePTR)
	if err != nil {
		return Found{}, fmt.Errorf("clusters cannot be looked for in domain %s: %w; see whether the domain is right, or give another DNS server "+
			"with --dns-server", domain, err)
	}
	for _, record := range records {
		all.add(record)
	}
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, name := range all.unasked() {
		group.Go(func() error {
			texts, err := ask(ctx, servers, name+"."+all.zone, dns.TypeTXT)
			if err != nil {
				return nil // it counts as left out
			}
			mu.Lock()
			defer mu.Unlock()
			for _, text := range texts {
				// A server may answer with more than it was asked for.
				if dns.CanonicalName(text.Header().Name) == name+"."+all.zone {
					all.add(text)
				}
			}
			return nil
		})
	}
	_ = group.Wait() // none returns an error
	return all.found(), nil
}

// ask asks servers one by one until one answers, and returns the records of the answer; none for a name that does not exist.
func ask(ctx context.Context, servers []string, name string, kind uint16) ([]dns.RR, error) {
	question := new(dns.Msg).SetQuestion(name, kind)
	question.SetEdns0(packet, false)
	var failed error
	for _, server := range servers {
		answer, _, err := (&dns.Client{Timeout: answerTimeout, UDPSize: packet}).ExchangeContext(ctx, question, server)
		if err == nil && answer.Truncated {
			answer, _, err = (&dns.Client{Net: "tcp", Timeout: answerTimeout}).ExchangeContext(ctx, question, server)
		}
		switch {
		case err != nil:
			failed = fmt.Errorf("DNS server %s does not answer (%w)", server, err)
		case !answersTo(question, answer):
			failed = fmt.Errorf("DNS server %s answers another question", server)
		case answer.Rcode == dns.RcodeNameError:
			return nil, nil
		case answer.Rcode != dns.RcodeSuccess:
			failed = fmt.Errorf("DNS server %s answers %s", server, dns.RcodeToString[answer.Rcode])
		default:
			return answer.Answer, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, failed
}

// answersTo says whether a message answers a question.
func answersTo(question, answer *dns.Msg) bool {
	return answer.Response && len(answer.Question) == 1 && answer.Question[0].Qtype == question.Question[0].Qtype &&
		dns.CanonicalName(answer.Question[0].Name) == dns.CanonicalName(question.Question[0].Name)
}
