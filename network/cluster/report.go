package cluster

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/network/agent"
	"github.com/lodestone-storage/lodestone/network/agent/plan"
	"github.com/lodestone-storage/lodestone/network/lane"
	"github.com/lodestone-storage/lodestone/network/site"
	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
)

// Reporter writes what a gateway knows into the NetworkLinks of its cluster. It is safe for concurrent use.
type Reporter struct {
	watch      *Watch
	config     *rest.Config
	self, port string
	keys       *lane.Keys

	// written is what was written last into each link. Only Run uses it.
	written map[Key]*sample

	mu   sync.Mutex
	last *agent.Report
}

// sample is when a gateway looked at its lanes to one cluster, and what it saw.
type sample struct {
	at    time.Time
	lanes []lane.Status
}

// renewal is how often an entry is written though nothing has changed but what is measured. With more links than it has seconds, each is
// written so much seldomer that one a second is.
const renewal = 30 * time.Second

// NewReporter returns the Reporter of a node, which listens at an address of the form host:port, or :port.
func NewReporter(watch *Watch, config *rest.Config, self, listen string, keys *lane.Keys) (*Reporter, error) {
	r := &Reporter{watch: watch, config: config, self: self, keys: keys, written: map[Key]*sample{}}
	if listen == "" {
		return r, nil
	}
	_, port, err := net.SplitHostPort(listen)
	if err != nil {
		return nil, fmt.Errorf("--listen=%s: give host:port or :port: %w", listen, err)
	}
	r.port = port
	return r, nil
}

// Report takes what the agent knows now; nil: the node is no gateway.
func (r *Reporter) Report(report *agent.Report) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last = report
}

// Run writes until ctx ends, at most once a second.
func (r *Reporter) Run(ctx context.Context) {
	clock := time.NewTicker(time.Second)
	defer clock.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-clock.C:
		}
		r.mu.Lock()
		last := r.last
		r.mu.Unlock()
		if last == nil {
			continue
		}
		links, verdicts := r.watch.Links()
		maps.DeleteFunc(r.written, func(key Key, _ *sample) bool { _, ok := verdicts[key]; return !ok })
		rest := max(renewal, time.Duration(len(links))*time.Second)
		for _, link := range links {
			verdict, ok := verdicts[KeyOf(link)]
			if !ok || ctx.Err() != nil {
				continue
			}
			if err := r.write(ctx, link, verdict, last, rest); err != nil {
				klog.FromContext(ctx).V(2).Info("The status of a NetworkLink is written again later", "link", klog.KObj(link), "err", err)
			}
		}
	}
}

// write writes the gateway's entry into a link if something in it has changed, or if it is older than rest.
func (r *Reporter) write(ctx context.Context, link *networkv1alpha1.NetworkLink, verdict Verdict, last *agent.Report, rest time.Duration,
) error {
	published, err := r.keys.Published() // made where they are used, by the first who needs them
	if err != nil {
		return err
	}
	own := networkv1alpha1.GatewayStatus{Gateway: networkv1alpha1.Gateway{Name: r.self, Address: r.address(r.watch.Node(r.self)),
		MTU: int32(last.MTU)}}
	for _, key := range published {
		own.Keys = append(own.Keys, key.String())
	}
	if end, has := last.WireGuard[r.watch.remoteName(link)]; has {
		own.WireGuard = &networkv1alpha1.WireGuardEnd{PublicKey: end.Key.String(), Port: int32(end.Port)}
	}
	key, now := KeyOf(link), &sample{time.Now(), last.Lanes[r.watch.remoteName(link)]}
	before := r.written[key]
	own.Direct = directLanes(last.Lanes, r.watch.remoteName(link), verdict)
	own.Lanes, own.RenewTime = lanes(now, before, podMTU(last.MTU, link, verdict.WireGuard)), metav1.NewTime(now.at.Truncate(time.Second))
	wanted := link.DeepCopy()
	wanted.Status = statusOf(link, verdict, own, r.watch.Gateways())
	if before != nil && now.at.Sub(before.at) < rest && equality.Semantic.DeepEqual(unmeasured(wanted.Status), unmeasured(link.Status)) {
		return nil
	}
	client, err := clients.NewNetworkLinks(r.config, link.Namespace)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if _, err := client.UpdateStatus(ctx, wanted, metav1.UpdateOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write the status of NetworkLink %s/%s: %w", link.Namespace, link.Name, err)
	}
	r.written[key] = now
	return nil
}

// podMTU is that of pods on both sides of a link.
func podMTU(here int, link *networkv1alpha1.NetworkLink, wireGuard bool) int {
	there := 0
	for _, g := range link.Spec.Gateways {
		if g.MTU != 0 && (there == 0 || int(g.MTU) < there) {
			there = int(g.MTU)
		}
	}
	remote := site.Remote{MTU: there}
	if wireGuard {
		remote.Carrier = site.WireGuard
	}
	return plan.LaneMTU(here, remote)
}

// address is host:port at which other clusters' gateways reach this one, empty if they do not.
func (r *Reporter) address(node *corev1.Node) string {
	if node == nil || r.port == "" {
		return ""
	}
	if said := node.Annotations[keys.GatewayAddress]; said != "" {
		return said
	}
	address, ok := addressOf(node)
	if !ok {
		return ""
	}
	return net.JoinHostPort(address.String(), r.port)
}

// lanes are statuses as objects have them, with the rates since the sample before, if there is one.
func lanes(now, before *sample, mtu int) (told []networkv1alpha1.LaneStatus) {
	for _, s := range now.lanes {
		l := networkv1alpha1.LaneStatus{Gateway: s.Peer, Up: s.Up, Since: metav1.NewTime(s.Since.Truncate(time.Second)),
			Connections: int32(s.Connections), RoundTripMicroseconds: s.RTT.Microseconds(), MTU: int32(mtu),
			Carrier: networkv1alpha1.TLS, CarrierMessage: sentence.Plain(s.Instead, networkv1alpha1.MaxMessage),
			CongestionControl: s.Congestion, Message: sentence.Plain(s.Problem, networkv1alpha1.MaxMessage)}
		if s.WireGuard {
			l.Carrier = networkv1alpha1.WireGuard
		}
		if before != nil {
			l.SentBytesPerSecond, l.ReceivedBytesPerSecond = rates(now, before, s)
		}
		told = append(told, l)
	}
	return told
}

// directLanes says how it is with the lanes to each cluster behind a home cluster that has some.
func directLanes(statuses map[string][]lane.Status, home string, verdict Verdict) (told []networkv1alpha1.DirectStatus) {
	remote := site.Remote{Name: home}
	for _, t := range verdict.Transit {
		if !t.Direct {
			continue
		}
		status := networkv1alpha1.DirectStatus{Cluster: t.Cluster}
		for _, s := range statuses[remote.DirectName(t.Cluster)] {
			status.Lanes++
			if s.Up {
				status.Up++
			} else if s.Problem != "" {
				status.Message = sentence.Plain(s.Peer+": "+s.Problem, networkv1alpha1.MaxMessage)
			}
		}
		if status.Up > 0 {
			status.Message = ""
		}
		told = append(told, status)
	}
	return told
}

// rates are how many bytes a second a lane has sent and received since a sample.
func rates(now, before *sample, s lane.Status) (sent, received int64) {
	i := slices.IndexFunc(before.lanes, func(old lane.Status) bool { return old.Peer == s.Peer })
	took := now.at.Sub(before.at).Seconds()
	if i < 0 || took <= 0 || s.Sent < before.lanes[i].Sent || s.Received < before.lanes[i].Received {
		return 0, 0 // the gateway was another one
	}
	return int64(float64(s.Sent-before.lanes[i].Sent) / took), int64(float64(s.Received-before.lanes[i].Received) / took)
}

// unmeasured is a status without what differs each time that somebody looks.
func unmeasured(status networkv1alpha1.NetworkLinkStatus) networkv1alpha1.NetworkLinkStatus {
	status = *status.DeepCopy()
	for i := range status.Gateways {
		g := &status.Gateways[i]
		g.RenewTime = metav1.Time{}
		for j := range g.Lanes {
			g.Lanes[j].RoundTripMicroseconds, g.Lanes[j].SentBytesPerSecond, g.Lanes[j].ReceivedBytesPerSecond = 0, 0, 0
		}
	}
	return status
}

// statusOf is the status that a link should have, as far as one of the gateways knows: its own entry, and none of nodes that are
// gateways no longer.
func statusOf(link *networkv1alpha1.NetworkLink, verdict Verdict, own networkv1alpha1.GatewayStatus,
	gateways map[string]bool,
) networkv1alpha1.NetworkLinkStatus {
	status := *link.Status.DeepCopy()
	status.ObservedGeneration = link.Generation
	condition := metav1.Condition{Type: networkv1alpha1.Accepted, Status: metav1.ConditionFalse, Reason: verdict.Reason,
		Message: sentence.Short(verdict.Message, networkv1alpha1.MaxMessage), ObservedGeneration: link.Generation}
	if verdict.Accepted {
		condition.Status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&status.Conditions, condition)
	status.PodCIDRs, status.PodTranslations, status.Transit = nil, nil, verdict.Transit
	if verdict.Accepted {
		for _, one := range verdict.Ranges {
			status.PodCIDRs = append(status.PodCIDRs, one.String())
		}
		status.PodTranslations = slices.Clone(link.Spec.PodTranslations)
	}
	status.Gateways = slices.DeleteFunc(status.Gateways, func(g networkv1alpha1.GatewayStatus) bool {
		return g.Name == own.Name || !gateways[g.Name]
	})
	status.Gateways = append(status.Gateways, own)
	slices.SortFunc(status.Gateways, func(a, b networkv1alpha1.GatewayStatus) int { return strings.Compare(a.Name, b.Name) })
	return status
}
