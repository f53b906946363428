package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
	"github.com/lodestone-storage/lodestone/virtualnode/reflect/copies"
)

const (
	// maxExports is how many ServiceExports of one namespace of a remote cluster are taken.
	maxExports = 100
	// maxEndpoints is how many endpoints of one Service are taken of each cluster, and maxSlices of how many EndpointSlices.
	maxEndpoints, maxSlices = 1000, 40
)

// Cluster is a cluster of the set: home, or a remote cluster as its RemoteCluster says.
type Cluster struct {
	// ID is what EndpointSlices call it: that of the home cluster, or the name of the RemoteCluster, which is that of its virtual node.
	ID string
	// Network says how pods there and at home reach each other; empty for home itself.
	Network v1alpha1.PodNetwork
	// Ranges are the addresses that pods there may have.
	Ranges remotecluster.PodRanges
	// Translations are of pods there, as home reaches them; HomeTranslations of those of home, as that cluster does.
	Translations, HomeTranslations remotecluster.Translations
}

// Home says whether it is the home cluster.
func (c *Cluster) Home() bool { return c.Network == "" }

// Reach says by which address pods of a cluster reach an endpoint of an export. Owner is the remote cluster in which the pod runs that home
// counts as its own, nil if it runs where the export is, or in a cluster that is not of the set; away then says so. ThroughHome says that
// its cluster and the other one, both remote, reach each other through home.
func Reach(to, from, owner *Cluster, away, throughHome bool, address netip.Addr) (reached netip.Addr, ok bool) {
	address = address.Unmap()
	switch {
	case !from.Home() && !from.Ranges.Has(address):
		return netip.Addr{}, false // whatever a cluster says, only its own pods are in it
	case from.Home() && to.Home():
		return address, true
	case from.Home() && away:
		return netip.Addr{}, false
	case from.Home() && owner == nil:
		return to.HomeTranslations.Reached(address)
	case from.Home():
		// Home knows the address by which it reaches that pod itself.
		own, ok := owner.Translations.Pod(address)
		if !ok {
			return netip.Addr{}, false
		}
		return between(to, owner, throughHome, own)
	}
	return between(to, from, throughHome, address)
}

// between is Reach for a pod of a remote cluster with an address of its own.
func between(to, in *Cluster, throughHome bool, address netip.Addr) (netip.Addr, bool) {
	switch {
	case to.ID == in.ID:
		return address, true
	case to.Home():
		return in.Translations.Reached(address)
	case to.Network == v1alpha1.Fabric && in.Network == v1alpha1.Fabric && throughHome:
		// As home reaches it, and home's addresses are translated there.
		if address, ok := in.Translations.Reached(address); ok {
			return to.HomeTranslations.Reached(address)
		}
		return netip.Addr{}, false
	}
	return address, to.Network == v1alpha1.Routed && in.Network == v1alpha1.Routed
}

// Destination is a namespace of a cluster in which Services are imported.
type Destination struct {
	To *Cluster
	// HomeID is the ID of the home cluster, Namespace that of the cluster.
	HomeID, Namespace string
	// Owner returns the cluster of the set that a node of home stands for. Away says of a node that it stands for another cluster, which
	// is not of the set.
	Owner func(node string) (owner *Cluster, away bool)
	// ThroughHome says of a remote cluster whether it and the one that To is reach each other through home.
	ThroughHome func(cluster string) bool
	// Silent says whether a cluster does not answer, so that nobody knows how its pods are.
	Silent func(cluster string) bool
}

// Slices returns the EndpointSlices for what an export adds to an import, and how many of its endpoints are not in them because they
// have addresses that are not of pods of its cluster, or are too many.
func (d Destination) Slices(export Export, kind mcs.ServiceImportType) (wanted []*discoveryv1.EndpointSlice, leftOut int) {
	sorted := slices.SortedFunc(slices.Values(export.Slices), func(a, b *discoveryv1.EndpointSlice) int {
		return strings.Compare(a.Name, b.Name)
	})
	taken := 0
	for i, slice := range sorted {
		if slice.AddressType == discoveryv1.AddressTypeFQDN || len(slice.Ports) > maxPorts || i >= maxSlices {
			leftOut += len(slice.Endpoints)
			continue
		}
		var endpoints []discoveryv1.Endpoint
		for _, endpoint := range slice.Endpoints {
			if taken == maxEndpoints {
				leftOut++
				continue
			}
			made, refused := d.endpoint(export.From, slice.AddressType, endpoint)
			switch {
			case made != nil:
				taken++
				endpoints = append(endpoints, *made)
			case refused:
				leftOut++
			}
		}
		if len(endpoints) > 0 {
			wanted = append(wanted, d.slices(export, slice, endpoints, kind)...)
		}
	}
	return wanted, leftOut
}

// endpoint returns an endpoint as pods of the destination reach it, nil if they do not; refused says that its address is none of its
// cluster.
func (d Destination) endpoint(from *Cluster, family discoveryv1.AddressType, endpoint discoveryv1.Endpoint) (
	made *discoveryv1.Endpoint, refused bool) {
	var owner *Cluster
	away := false
	if from.Home() && endpoint.NodeName != nil {
		owner, away = d.Owner(*endpoint.NodeName)
	}
	// The first address is the one that counts; all others are the same pod's.
	if len(endpoint.Addresses) == 0 {
		return nil, false
	}
	address, err := netip.ParseAddr(endpoint.Addresses[0])
	if err != nil || address.Is4() != (family == discoveryv1.AddressTypeIPv4) || address.Zone() != "" {
		return nil, true
	}
	in := from
	if owner != nil {
		in = owner
	}
	reached, ok := Reach(d.To, from, owner, away, d.ThroughHome(in.ID), address)
	if !ok {
		return nil, !from.Home() && !from.Ranges.Has(address)
	}
	if !reached.IsGlobalUnicast() {
		return nil, true
	}
	made = &discoveryv1.Endpoint{Addresses: []string{reached.String()}, Conditions: *endpoint.Conditions.DeepCopy()}
	if endpoint.Hostname != nil && len(validation.IsDNS1123Label(*endpoint.Hostname)) == 0 {
		made.Hostname = endpoint.Hostname
	}
	if from.ID == d.To.ID && endpoint.NodeName != nil {
		made.NodeName = endpoint.NodeName // of other clusters' nodes nobody here has heard
	}
	if from.ID != d.To.ID && d.Silent(from.ID) {
		silence(made)
	}
	return made, false
}

// silence says of an endpoint what Kubernetes says of pods on a node that does not answer.
func silence(endpoint *discoveryv1.Endpoint) {
	endpoint.Conditions.Ready, endpoint.Conditions.Serving = ptr.To(false), ptr.To(false)
}

// Silenced returns an EndpointSlice as it is to be while its cluster does not answer.
func Silenced(have *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	next := have.DeepCopy()
	for i := range next.Endpoints {
		silence(&next.Endpoints[i])
	}
	return next
}

// slices returns the objects for one EndpointSlice of an export: one that is both the import's and the derived Service's. Pods of a
// headless import have names, which tell their cluster; those that CoreDNS makes of a Service have no place for it. So there it has
// one of its own, with the cluster in the host names.
func (d Destination) slices(export Export, slice *discoveryv1.EndpointSlice, endpoints []discoveryv1.Endpoint,
	kind mcs.ServiceImportType) []*discoveryv1.EndpointSlice {
	name := export.Object.Name
	imported := &discoveryv1.EndpointSlice{
		ObjectMeta:  d.meta(sliceName(export.From.ID, slice.Name), name),
		AddressType: slice.AddressType, Endpoints: endpoints, Ports: slice.Ports,
	}
	imported.Labels[mcs.LabelServiceName], imported.Labels[mcs.LabelSourceCluster] = name, export.From.ID
	imported.Labels[discoveryv1.LabelManagedBy] = copies.Manager
	if kind != mcs.Headless {
		imported.Labels[discoveryv1.LabelServiceName] = DerivedName(name)
		return []*discoveryv1.EndpointSlice{imported}
	}
	imported.Labels[corev1.IsHeadlessService] = "" // else kube-proxy logs an error at each of its changes
	derived := imported.DeepCopy()
	derived.Name += "-names"
	delete(derived.Labels, mcs.LabelServiceName)
	derived.Labels[discoveryv1.LabelServiceName] = DerivedName(name)
	for i, endpoint := range derived.Endpoints {
		if endpoint.Hostname == nil {
			continue
		}
		derived.Endpoints[i].Hostname = nil
		if host := *endpoint.Hostname + "--" + export.From.ID; len(validation.IsDNS1123Label(host)) == 0 {
			derived.Endpoints[i].Hostname = &host
		}
	}
	return []*discoveryv1.EndpointSlice{imported, derived}
}

// sliceName is that of the copy of an EndpointSlice of a cluster.
func sliceName(cluster, slice string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%s", cluster, slice))
	return prefix + hex.EncodeToString(sum[:10])
}

// Reflected says whether an EndpointSlice is one that this or another program of Lodestone has made: it has no endpoints of its own cluster
// that the cluster's own slices have not.
func Reflected(slice *discoveryv1.EndpointSlice) bool {
	return slice.Labels[discoveryv1.LabelManagedBy] == copies.Manager || slice.Labels[keys.Reflected] != ""
}
