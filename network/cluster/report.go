package cluster

import (
	"context"
	"fmt"
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
	"github.com/lodestone-storage/lodestone/network/lane"
	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Reporter writes what a gateway knows into the NetworkLinks of its cluster. It is safe for concurrent use.
type Reporter struct {
	watch      *Watch
	config     *rest.Config
	self, port string
	state      string

	mu   sync.Mutex
	last *agent.Report
}

// NewReporter returns the Reporter of a node, whose key is in the directory state, and which listens at an address of the form host:port,
// or :port.
func NewReporter(watch *Watch, config *rest.Config, self, listen, state string) (*Reporter, error) {
	r := &Reporter{watch: watch, config: config, self: self, state: state}
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
		for _, link := range links {
			verdict, ok := verdicts[KeyOf(link)]
			if !ok || ctx.Err() != nil {
				continue
			}
			if err := r.write(ctx, link, verdict, last); err != nil {
				klog.FromContext(ctx).V(2).Info("The status of a NetworkLink is written again later", "link", klog.KObj(link), "err", err)
			}
		}
	}
}

func (r *Reporter) write(ctx context.Context, link *networkv1alpha1.NetworkLink, verdict Verdict, last *agent.Report) error {
	identity, err := lane.LoadIdentity(r.state) // made where it is used, by the first who needs it
	if err != nil {
		return err
	}
	own := networkv1alpha1.GatewayStatus{Gateway: networkv1alpha1.Gateway{Name: r.self, Address: r.address(r.watch.Node(r.self)),
		Keys: []string{identity.Key.String()}, MTU: int32(last.MTU)}, Lanes: lanes(last.Lanes[r.watch.remoteName(link)])}
	wanted := link.DeepCopy()
	wanted.Status = statusOf(link, verdict, own, r.watch.Gateways())
	if equality.Semantic.DeepEqual(wanted.Status, link.Status) {
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
	return nil
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

// lanes are statuses as objects have them.
func lanes(statuses []lane.Status) (told []networkv1alpha1.LaneStatus) {
	for _, s := range statuses {
		told = append(told, networkv1alpha1.LaneStatus{Gateway: s.Peer, Up: s.Up, Since: metav1.NewTime(s.Since.Truncate(time.Second)),
			CongestionControl: s.Congestion, Message: s.Problem})
	}
	return told
}

// statusOf is the status that a link should have, as far as one of the gateways knows: its own entry, and none of nodes that are
// gateways no longer.
func statusOf(link *networkv1alpha1.NetworkLink, verdict Verdict, own networkv1alpha1.GatewayStatus,
	gateways map[string]bool,
) networkv1alpha1.NetworkLinkStatus {
	status := *link.Status.DeepCopy()
	status.ObservedGeneration = link.Generation
	condition := metav1.Condition{Type: networkv1alpha1.Accepted, Status: metav1.ConditionFalse, Reason: verdict.Reason,
		Message: verdict.Message, ObservedGeneration: link.Generation}
	if verdict.Accepted {
		condition.Status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&status.Conditions, condition)
	status.PodCIDRs = nil
	if verdict.Accepted {
		for _, one := range verdict.Ranges {
			status.PodCIDRs = append(status.PodCIDRs, one.String())
		}
	}
	status.Gateways = slices.DeleteFunc(status.Gateways, func(g networkv1alpha1.GatewayStatus) bool {
		return g.Name == own.Name || !gateways[g.Name]
	})
	status.Gateways = append(status.Gateways, own)
	slices.SortFunc(status.Gateways, func(a, b networkv1alpha1.GatewayStatus) int { return strings.Compare(a.Name, b.Name) })
	return status
}
