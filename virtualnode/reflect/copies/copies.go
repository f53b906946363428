// Package copies makes the copies of home objects that pods in a remote cluster need, and decides
// how an existing copy must change: for each kind one method of Destination makes the wanted copy,
// and a Merge function compares it with the existing one. It is pure.
package copies

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/remotecluster"
)

// Destination is a namespace of a remote cluster that copies are written to.
type Destination struct {
	// HomeID is the ID of the home cluster; it marks the copies that belong to it.
	HomeID string
	// Namespace is the namespace of the remote cluster.
	Namespace string
	// HomePods are by which addresses pods there reach those at home.
	HomePods remotecluster.Translations
}

// Change is what must be done to an existing copy.
type Change int

const (
	// None means that the copy is as wanted.
	None Change = iota
	// Update means that the copy must be written.
	Update
	// Replace means that the copy must be deleted and created again, because the fields that differ
	// cannot be changed.
	Replace
)

// Ours reports whether an object of a remote cluster is a copy made by the home
// cluster with the given ID. EndpointSlices that the cluster itself makes for a copied Service are not,
// although Kubernetes gives them the labels of the Service.
func Ours(object metav1.Object, homeID string) bool {
	labels := object.GetLabels()
	manager, managed := labels[discoveryv1.LabelManagedBy]
	return labels[keys.HomeID] == homeID && labels[keys.Reflected] != "" && (!managed || manager == Manager)
}

// IsCopy reports whether an object of home is itself a copy, made here by another home cluster.
// Copies are not copied again.
func IsCopy(object metav1.Object) bool { return object.GetLabels()[keys.Reflected] != "" }

// meta returns the metadata of a copy. Labels and annotations of the home object are not copied:
// pods do not see them, and controllers of the remote cluster might act on them.
func (p Destination) meta(name string, home types.UID) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: p.Namespace, Name: name,
		Labels: map[string]string{keys.HomeID: p.HomeID, keys.Reflected: string(home)},
	}
}

// ConfigMap returns the copy of a ConfigMap.
func (p Destination) ConfigMap(home *corev1.ConfigMap) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: p.meta(home.Name, home.UID), Data: home.Data, BinaryData: home.BinaryData, Immutable: home.Immutable}
}

// MergeConfigMap returns what an existing copy should become, and how.
func MergeConfigMap(have, want *corev1.ConfigMap) (*corev1.ConfigMap, Change) {
	next := have.DeepCopy()
	adopt(next, want)
	next.Data, next.BinaryData, next.Immutable = want.Data, want.BinaryData, want.Immutable
	if equality.Semantic.DeepEqual(have, next) {
		return next, None
	}
	same := equality.Semantic.DeepEqual(have.Data, want.Data) && equality.Semantic.DeepEqual(have.BinaryData, want.BinaryData)
	if have.Immutable != nil && *have.Immutable && (!same || want.Immutable == nil || !*want.Immutable) {
		return next, Replace
	}
	return next, Update
}

// adopt sets the labels of a copy on an object, which may have others too.
func adopt(next, want metav1.Object) {
	labels := maps.Clone(next.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	// Labels that mark a copy, or decide what it does, must be only ours.
	for key := range labels {
		if strings.HasPrefix(key, "lodestone.dev/") {
			delete(labels, key)
		}
	}
	maps.Copy(labels, want.GetLabels())
	next.SetLabels(labels)
}

// TravelsService reports whether a Service of home is copied. Three are not: that of the API server,
// which each cluster has itself, a copy, and one that stands for a ServiceImport, which other clusters
// have themselves.
func TravelsService(home *corev1.Service) bool {
	return (home.Namespace != metav1.NamespaceDefault || home.Name != "kubernetes") && !IsCopy(home) && home.Labels[keys.ServiceImport] == ""
}

// Service returns the copy of a Service: it has the name, ports and selector, so
// that the remote cluster finds the pods there itself. Addresses, node ports and
// load balancers belong to home.
func (p Destination) Service(home *corev1.Service) *corev1.Service {
	service := &corev1.Service{
		ObjectMeta: p.meta(home.Name, home.UID),
		Spec: corev1.ServiceSpec{
			Type:                     corev1.ServiceTypeClusterIP,
			Selector:                 home.Spec.Selector,
			SessionAffinity:          home.Spec.SessionAffinity,
			SessionAffinityConfig:    home.Spec.SessionAffinityConfig,
			PublishNotReadyAddresses: home.Spec.PublishNotReadyAddresses,
		},
	}
	for _, port := range home.Spec.Ports {
		port.NodePort = 0
		service.Spec.Ports = append(service.Spec.Ports, port)
	}
	switch {
	case home.Spec.Type == corev1.ServiceTypeExternalName:
		service.Spec.Type, service.Spec.ExternalName = corev1.ServiceTypeExternalName, home.Spec.ExternalName
	case home.Spec.ClusterIP == corev1.ClusterIPNone:
		service.Spec.ClusterIP = corev1.ClusterIPNone
	}
	return service
}

// MergeService returns what an existing copy should become, and how. What the remote cluster chose,
// such as the address, stays.
func MergeService(have, want *corev1.Service) (*corev1.Service, Change) {
	next := have.DeepCopy()
	adopt(next, want)
	spec := &next.Spec
	spec.Ports = want.Spec.Ports
	spec.Selector = want.Spec.Selector
	spec.PublishNotReadyAddresses = want.Spec.PublishNotReadyAddresses
	spec.ExternalName = want.Spec.ExternalName
	spec.Type = want.Spec.Type
	spec.ExternalIPs, spec.LoadBalancerSourceRanges = nil, nil
	spec.LoadBalancerIP, spec.LoadBalancerClass = "", nil
	if want.Spec.SessionAffinity != "" {
		spec.SessionAffinity, spec.SessionAffinityConfig = want.Spec.SessionAffinity, want.Spec.SessionAffinityConfig
	}
	switch {
	case kind(have) != kind(want) || have.Spec.Type != want.Spec.Type:
		return next, Replace
	case equality.Semantic.DeepEqual(have, next):
		return next, None
	default:
		return next, Update
	}
}

// kind returns a value that is equal for Services that can become one another: an address that was
// assigned cannot be changed.
func kind(service *corev1.Service) string {
	switch {
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return "name"
	case service.Spec.ClusterIP == corev1.ClusterIPNone:
		return "headless"
	default:
		return "address"
	}
}

const (
	// Manager is the value of the label that says who manages an EndpointSlice. With it the remote
	// cluster's own controller does not change the copies.
	Manager = keys.Driver

	slicePrefix = "lodestone-"
)

// Slice returns the copy of an EndpointSlice without the endpoints on nodes that are left out: those on the cluster's own virtual node,
// which the remote cluster adds itself, and those that it does not reach. It returns nil if no endpoint is left.
func (p Destination) Slice(home *discoveryv1.EndpointSlice, leftOut func(node string) bool) *discoveryv1.EndpointSlice {
	service := home.Labels[discoveryv1.LabelServiceName]
	if service == "" || IsCopy(home) {
		return nil
	}
	var endpoints []discoveryv1.Endpoint
	for _, endpoint := range home.Endpoints {
		if endpoint.NodeName != nil && leftOut(*endpoint.NodeName) {
			continue
		}
		addresses := p.reached(endpoint.Addresses)
		if len(addresses) == 0 {
			continue
		}
		endpoints = append(endpoints, discoveryv1.Endpoint{Addresses: addresses, Conditions: endpoint.Conditions,
			Hostname: endpoint.Hostname})
	}
	if len(endpoints) == 0 {
		return nil
	}
	slice := &discoveryv1.EndpointSlice{
		// The home object's own name could collide with a name that the remote cluster has
		// generated.
		ObjectMeta:  p.meta(slicePrefix+string(home.UID), home.UID),
		AddressType: home.AddressType,
		Endpoints:   endpoints,
		Ports:       home.Ports,
	}
	slice.Labels[discoveryv1.LabelServiceName] = service
	slice.Labels[discoveryv1.LabelManagedBy] = Manager
	if value, headless := home.Labels[corev1.IsHeadlessService]; headless {
		slice.Labels[corev1.IsHeadlessService] = value
	}
	return slice
}

// reached are the addresses by which pods there reach an endpoint at home.
func (p Destination) reached(home []string) []string {
	if len(p.HomePods) == 0 {
		return home
	}
	var reached []string
	for _, text := range home {
		address, err := netip.ParseAddr(text)
		if err != nil {
			reached = append(reached, text) // a name
			continue
		}
		if as, ok := p.HomePods.Reached(address); ok {
			reached = append(reached, as.String())
		}
	}
	return reached
}

// MergeSlice returns what an existing copy should become, and how.
func MergeSlice(have, want *discoveryv1.EndpointSlice) (*discoveryv1.EndpointSlice, Change) {
	next := have.DeepCopy()
	adopt(next, want)
	if _, headless := want.Labels[corev1.IsHeadlessService]; !headless {
		delete(next.Labels, corev1.IsHeadlessService)
	}
	next.AddressType, next.Endpoints, next.Ports = want.AddressType, want.Endpoints, want.Ports
	switch {
	case equality.Semantic.DeepEqual(have, next):
		return next, None
	case have.AddressType != want.AddressType:
		return next, Replace
	default:
		return next, Update
	}
}

// Secret returns the copy of a Secret.
func (p Destination) Secret(home *corev1.Secret) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: p.meta(home.Name, home.UID), Data: home.Data, Type: home.Type, Immutable: home.Immutable}
}

// Token returns the Secret of a given name with a home API token of a pod. Its keys are those of
// the token volume of pods at home.
func (p Destination) Token(name string, pod *corev1.Pod, token, authority string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: p.meta(name, pod.UID),
		Type:       corev1.SecretTypeOpaque,
		Data: map[string][]byte{
			corev1.ServiceAccountTokenKey:     []byte(token),
			corev1.ServiceAccountRootCAKey:    []byte(authority),
			corev1.ServiceAccountNamespaceKey: []byte(pod.Namespace),
		},
	}
}

// operation is one of a JSON patch.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// proof returns the first operations of each JSON patch of a Secret: they make the patch fail on a
// Secret that is not the copy of that home object. This needs no right to read Secrets.
func proof(homeID string, home types.UID) []operation {
	label := func(key string) string { return "/metadata/labels/" + strings.ReplaceAll(key, "/", "~1") }
	return []operation{
		{Op: "test", Path: label(keys.HomeID), Value: homeID},
		{Op: "test", Path: label(keys.Reflected), Value: string(home)},
	}
}

// ProofPatch returns a JSON patch that changes nothing, and succeeds only on the copy of the home
// object with the given UID.
func ProofPatch(homeID string, home types.UID) ([]byte, error) {
	return encode(proof(homeID, home))
}

// SecretPatch returns a JSON patch that updates the copy of a home Secret and fails on any other
// Secret.
func SecretPatch(want *corev1.Secret) ([]byte, error) {
	owners := want.OwnerReferences
	if owners == nil {
		owners = []metav1.OwnerReference{}
	}
	data := want.Data
	if data == nil {
		data = map[string][]byte{}
	}
	immutable := want.Immutable != nil && *want.Immutable
	return encode(append(proof(want.Labels[keys.HomeID], types.UID(want.Labels[keys.Reflected])),
		operation{Op: "add", Path: "/metadata/ownerReferences", Value: owners},
		operation{Op: "add", Path: "/data", Value: data},
		operation{Op: "add", Path: "/immutable", Value: immutable},
	))
}

func encode(operations []operation) ([]byte, error) {
	patch, err := json.Marshal(operations)
	if err != nil {
		return nil, fmt.Errorf("encode a patch: %w", err)
	}
	return patch, nil
}
