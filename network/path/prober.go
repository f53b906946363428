// Package path probes the whole way from a pod of this cluster to pods of others, as a pod: over the clusters' own networks, gateways and
// lanes. It answers such probes, too. Read prober.go first.
package path

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
)

const (
	// renewal is how often a pod's entry is written though nothing has changed.
	renewal = 20 * time.Second
	// stale is for how long another pod may leave its entry as it is.
	stale = 2 * time.Minute
)

// Settings are what a pod that probes needs.
type Settings struct {
	// Name, Node and Addresses are its own: one of IPv4, or of IPv6, or of each.
	Name, Node string
	Addresses  []netip.Addr
	// Namespace is that of the links to probe; empty: all.
	Namespace string
	Config    *rest.Config
	Metrics   prometheus.Registerer
	// Ready is called once the links are known.
	Ready func()
}

// prober probes for all links.
type prober struct {
	Settings
	links   cache.SharedIndexInformer
	written map[string]time.Time // when the own entry was written into a link
	others  map[string]sighting  // entries of other pods, by link and name

	mu      sync.Mutex
	targets map[netip.Addr]*running
}

// sighting is the time in an entry of another pod, and when that was seen first: the clock of that pod's node may be wrong.
type sighting struct {
	renewed metav1.Time
	seen    time.Time
}

type running struct {
	*target
	end context.CancelFunc
	aimed
}

// aimed is the link through which a target was found, for metrics, and the address by which pods there see this one.
type aimed struct {
	link string
	own  netip.Addr
}

// Run answers and probes until ctx ends, and then takes its entries away.
func Run(ctx context.Context, settings Settings) error {
	for _, address := range settings.Addresses {
		if err := Serve(ctx, netip.AddrPortFrom(address, Port)); err != nil {
			return err
		}
	}
	client, err := clients.NewNetworkLinks(settings.Config, settings.Namespace)
	if err != nil {
		return err
	}
	p := &prober{Settings: settings, links: clients.NewInformer(client, &networkv1alpha1.NetworkLink{}, nil, cache.Indexers{}),
		written: map[string]time.Time{}, others: map[string]sighting{}, targets: map[netip.Addr]*running{}}
	settings.Metrics.MustRegister(p)
	go p.links.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), p.links.HasSynced) {
		return nil
	}
	settings.Ready()
	clock := time.NewTicker(time.Second)
	defer clock.Stop()
	for {
		links := controller.All[networkv1alpha1.NetworkLink](p.links)
		p.aim(ctx, links)
		p.others = sight(p.others, links, time.Now())
		for _, link := range links {
			if err := p.write(ctx, link, false); err != nil {
				klog.FromContext(ctx).V(2).Info("The entry of this pod is written again later", "link", klog.KObj(link), "err", err)
			}
		}
		select {
		case <-ctx.Done():
			p.leave(context.WithoutCancel(ctx), links)
			return nil
		case <-clock.C:
		}
	}
}

// leave takes the pod's entries away: a pod that ends is no path that is down.
func (p *prober) leave(ctx context.Context, links []*networkv1alpha1.NetworkLink) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, link := range links {
		if latest := controller.Get[networkv1alpha1.NetworkLink](p.links, link.Namespace+"/"+link.Name); latest != nil {
			link = latest
		}
		if err := p.write(ctx, link, true); err != nil {
			klog.FromContext(ctx).Info("The entry of this pod stays until others take it away", "link", klog.KObj(link), "err", err)
		}
	}
}

// Targets are the pods that a link says answer probes, within the ranges of its pods that count here; none while this cluster takes no
// part in it.
func Targets(link *networkv1alpha1.NetworkLink) (addresses []netip.Addr) {
	ranges, err := remotecluster.ParsePodRanges(link.Status.PodCIDRs)
	if err != nil || !meta.IsStatusConditionTrue(link.Status.Conditions, networkv1alpha1.Accepted) {
		return nil
	}
	for _, text := range link.Spec.Probes {
		if address, err := netip.ParseAddr(text); err == nil && !address.Is4In6() && ranges.Has(address) {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

// Seen is the address by which pods of the other cluster of a link see a pod of this one.
func Seen(link *networkv1alpha1.NetworkLink, own netip.Addr) netip.Addr {
	translations, err := remotecluster.ParseTranslations(link.Status.PodTranslations)
	if err != nil {
		return own
	}
	if seen, ok := translations.Reached(own); ok {
		return seen
	}
	return own
}

// aim begins and ends to probe.
func (p *prober) aim(ctx context.Context, links []*networkv1alpha1.NetworkLink) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wanted := map[netip.Addr]aimed{}
	for _, link := range links {
		for _, address := range Targets(link) {
			if own, ok := p.like(address); ok {
				wanted[address] = aimed{link.Namespace + "/" + link.Name, Seen(link, own)}
			}
		}
	}
	for address, t := range p.targets {
		if wanted[address] != t.aimed {
			t.end()
			delete(p.targets, address)
		}
	}
	for address, from := range wanted {
		if p.targets[address] == nil {
			within, end := context.WithCancel(ctx)
			t := &running{newTarget(from.own, address), end, from}
			p.targets[address] = t
			go t.run(within)
		}
	}
}

// like returns the pod's own address of the same family as another one; false: it has none.
func (p *prober) like(other netip.Addr) (own netip.Addr, ok bool) {
	i := slices.IndexFunc(p.Addresses, func(own netip.Addr) bool { return own.Is4() == other.Is4() })
	if i < 0 {
		return netip.Addr{}, false
	}
	return p.Addresses[i], true
}

// paths are the statuses of a link's targets.
func (p *prober) paths(link *networkv1alpha1.NetworkLink) (paths []networkv1alpha1.PathStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, address := range Targets(link) {
		if t := p.targets[address]; t != nil {
			paths = append(paths, t.status())
		}
	}
	return paths
}

// write writes the pod's entry into a link if it is due.
func (p *prober) write(ctx context.Context, link *networkv1alpha1.NetworkLink, leaving bool) error {
	key := link.Namespace + "/" + link.Name
	now := time.Now()
	own := networkv1alpha1.ProbeStatus{Name: p.Name, Node: p.Node, Address: p.Addresses[0].String(),
		RenewTime: metav1.NewTime(now.Truncate(time.Second)), Paths: p.paths(link)}
	if len(p.Addresses) > 1 {
		own.SecondAddress = p.Addresses[1].String()
	}
	i := slices.IndexFunc(link.Status.Probes, func(s networkv1alpha1.ProbeStatus) bool { return s.Name == p.Name })
	if !leaving && i >= 0 && now.Sub(p.written[key]) < renewal && same(link.Status.Probes[i], own) {
		return nil
	}
	wanted := link.DeepCopy()
	wanted.Status.Probes = entries(link.Status.Probes, own, leaving, p.old(key, now))
	client, err := clients.NewNetworkLinks(p.Config, link.Namespace)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err := client.UpdateStatus(ctx, wanted, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write the status of NetworkLink %s: %w", key, err)
	}
	p.written[key] = now
	return nil
}

// same says that two entries do not differ but in what is written only now and then.
func same(a, b networkv1alpha1.ProbeStatus) bool {
	path := func(a, b networkv1alpha1.PathStatus) bool {
		return a.Address == b.Address && a.Up == b.Up && a.Message == b.Message
	}
	return a.Address == b.Address && a.SecondAddress == b.SecondAddress && slices.EqualFunc(a.Paths, b.Paths, path)
}

// old says of another pod whether it left its entry in a link as it is for too long.
func (p *prober) old(link string, now time.Time) func(name string) bool {
	return func(name string) bool {
		other, known := p.others[link+"/"+name]
		return known && now.Sub(other.seen) > stale
	}
}

// sight looks at the entries of all pods, and remembers of those that are as they were since when.
func sight(before map[string]sighting, links []*networkv1alpha1.NetworkLink, now time.Time) map[string]sighting {
	after := map[string]sighting{}
	for _, link := range links {
		for _, s := range link.Status.Probes {
			name := link.Namespace + "/" + link.Name + "/" + s.Name
			known, is := before[name]
			if !is || !known.renewed.Equal(&s.RenewTime) {
				known = sighting{s.RenewTime, now}
			}
			after[name] = known
		}
	}
	return after
}

// entries are those of a link with a pod's own, or without it, and without those that nobody renews, as old says. Of too many the newest
// are kept.
func entries(
	present []networkv1alpha1.ProbeStatus, own networkv1alpha1.ProbeStatus, leaving bool, old func(name string) bool,
) []networkv1alpha1.ProbeStatus {
	kept := slices.DeleteFunc(slices.Clone(present), func(s networkv1alpha1.ProbeStatus) bool {
		return s.Name == own.Name || old(s.Name)
	})
	if !leaving {
		slices.SortFunc(kept, func(a, b networkv1alpha1.ProbeStatus) int { return b.RenewTime.Compare(a.RenewTime.Time) })
		kept = append(kept[:min(len(kept), networkv1alpha1.MaxProbes-1)], own)
	}
	slices.SortFunc(kept, func(a, b networkv1alpha1.ProbeStatus) int { return strings.Compare(a.Name, b.Name) })
	return kept
}

var (
	pathLabels = []string{"link", "address"}
	pathUp     = prometheus.NewDesc("lodestone_network_path_up",
		"Whether probes of the whole way to a pod of another cluster are answered, of all sizes and by TCP and UDP.", pathLabels, nil)
	pathRoundTrip = prometheus.NewDesc("lodestone_network_path_round_trip_seconds",
		"The median time of the last probes of the whole way to a pod of another cluster and back.", pathLabels, nil)
	pathLoss = prometheus.NewDesc("lodestone_network_path_loss_ratio",
		"How many of the last probes of the whole way to a pod of another cluster were not answered.", pathLabels, nil)
)

// Describe and Collect make the prober's paths metrics.
func (p *prober) Describe(into chan<- *prometheus.Desc) {
	into <- pathUp
	into <- pathRoundTrip
	into <- pathLoss
}

// Collect asks the targets.
func (p *prober) Collect(into chan<- prometheus.Metric) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.targets {
		s := t.status()
		up := 0.0
		if s.Up {
			up = 1
		}
		into <- prometheus.MustNewConstMetric(pathUp, prometheus.GaugeValue, up, t.link, s.Address)
		into <- prometheus.MustNewConstMetric(pathRoundTrip, prometheus.GaugeValue, float64(s.RoundTripMicroseconds)/1e6, t.link, s.Address)
		into <- prometheus.MustNewConstMetric(pathLoss, prometheus.GaugeValue, float64(s.LossPercent)/100, t.link, s.Address)
	}
}
