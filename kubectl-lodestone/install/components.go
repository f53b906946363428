package install

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// inventoryNamespace is where deploy/components/cluster-profiles has ClusterProfiles written.
const inventoryNamespace = "cluster-inventory"

// What optional components use of others' definitions, in the versions that the programs use.
var (
	serviceExports  = schema.GroupVersionResource{Group: "multicluster.x-k8s.io", Version: "v1beta1", Resource: "serviceexports"}
	serviceImports  = serviceExports.GroupVersion().WithResource("serviceimports")
	clusterProfiles = schema.GroupVersionResource{Group: "multicluster.x-k8s.io", Version: "v1alpha1", Resource: "clusterprofiles"}
)

// ServesServices and ServesProfiles say whether a cluster has the definitions that the components services and cluster-profiles take.
func ServesServices(c *cli.Cluster) (bool, error) {
	return c.Serves(serviceExports.GroupVersion().String(), serviceExports.Resource)
}

// ServesProfiles is explained at ServesServices.
func ServesProfiles(c *cli.Cluster) (bool, error) {
	return c.Serves(clusterProfiles.GroupVersion().String(), clusterProfiles.Resource)
}

// Corefile returns what CoreDNS of a cluster is configured by; empty where there is no such ConfigMap.
func Corefile(ctx context.Context, c *cli.Cluster) (string, error) {
	switch kept, err := c.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "coredns", metav1.GetOptions{}); {
	case err == nil:
		return kept.Data["Corefile"], nil
	case !apierrors.IsNotFound(err):
		return "", c.Explain("get configmap coredns -n kube-system", err)
	}
	return "", nil
}

// FindsShared says that CoreDNS finds names of shared Services: by lines that rewrite them, or by its own plugin. It is pure.
func FindsShared(corefile string) bool {
	for line := range strings.Lines(corefile) {
		code, _, _ := strings.Cut(line, "#")
		words := strings.Fields(code)
		if len(words) > 0 && (words[0] == "multicluster" || words[0] == "rewrite" && strings.Contains(code, "clusterset")) {
			return true
		}
	}
	return false
}

// IsGateway says that an administrator has made a node a gateway of the network fabric. It is pure.
func IsGateway(node corev1.Node) bool { return node.Labels[keys.Gateway] == keys.GatewayEnabled }

// observeForComponents reads what decides whether optional components can be installed.
func (i *installing) observeForComponents(ctx context.Context, facts *Facts) (err error) {
	if facts.ServiceExports, err = ServesServices(i.Cluster); err != nil {
		return err
	}
	if facts.ClusterProfiles, err = ServesProfiles(i.Cluster); err != nil {
		return err
	}
	facts.Corefile, err = Corefile(ctx, i.Cluster)
	return err
}

// checkComponents refuses optional components that lack what they need, and says what else they take. It is pure.
func (v Values) checkComponents(facts Facts, remote bool) (notes []string, err error) {
	network, services := ptr.Deref(v.Network, false), ptr.Deref(v.Services, false)
	switch withoutNodes := !remote && !ptr.Deref(v.VirtualNodes, false); {
	case network && withoutNodes:
		return nil, fmt.Errorf("the network fabric needs Lodestone's virtual nodes at home, which are left out here: leave --network out, or " +
			"give --network=false to take it away")
	case services && withoutNodes:
		return nil, fmt.Errorf("Lodestone's virtual nodes share Services, and are left out here: leave --services out, or give " +
			"--services=false to take that away")
	case services && !facts.ServiceExports:
		return nil, fmt.Errorf("the cluster does not serve ServiceExports of %s: apply the definitions of the Multi-Cluster Services API first "+
			"(docs/services.md#set-it-up), or leave --services out", serviceExports.GroupVersion())
	case ptr.Deref(v.ClusterProfiles, false) && !facts.ClusterProfiles:
		return nil, fmt.Errorf("the cluster does not serve ClusterProfiles of %s: apply their definition first "+
			"(docs/remote-clusters.md#clusterprofiles), or leave --cluster-profiles out", clusterProfiles.GroupVersion())
	}
	if network && !slices.ContainsFunc(facts.Nodes, IsGateway) {
		notes = append(notes, fmt.Sprintf("no node is a gateway of the network yet: kubectl label node NODE %s=%s makes one, and there are "+
			"to be two", keys.Gateway, keys.GatewayEnabled))
	}
	if network && slices.Contains(facts.Groups, constraints) {
		notes = append(notes, "no SecurityContextConstraints of Lodestone's admit the network program: let ServiceAccount lodestone-network of "+
			keys.NetworkNamespace+" use some that allow the host's network and NET_ADMIN, such as privileged")
	}
	if services && !FindsShared(facts.Corefile) {
		notes = append(notes, "names below clusterset.local are not found in this cluster before its DNS is told of them: "+
			"docs/services.md#names has the lines for CoreDNS")
	}
	return notes, nil
}

// mayTakeAway returns an error while something depends on an optional component that is wanted no more.
func (i *installing) mayTakeAway(ctx context.Context, had, wanted Values) error {
	gone := func(had, wanted *bool) *bool { return ptr.To(ptr.Deref(had, false) && !ptr.Deref(wanted, false)) }
	held, err := i.inUse(ctx, Values{Network: gone(had.Network, wanted.Network), Services: gone(had.Services, wanted.Services)})
	if err != nil || len(held) == 0 {
		return err
	}
	return cli.Refuse("a component that is to be taken away is in use in the cluster of context %q, and nothing was changed: %s", i.Context,
		strings.Join(held, "; "))
}

// inUse lists what depends on optional components: networks that are joined, and Services that are shared.
func (t *target) inUse(ctx context.Context, v Values) ([]string, error) {
	var links, imports []string
	if ptr.Deref(v.Network, false) {
		remotes, err := t.Remotes.List(ctx, metav1.ListOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, t.Explain("list remoteclusters", err)
		}
		if err == nil {
			for _, remote := range remotes.Items {
				if remote.Spec.PodNetwork == v1alpha1.Fabric {
					links = append(links, keys.NetworkNamespace+"/"+remote.Name)
				}
			}
		}
		if links, err = t.namesOf(ctx, networkv1alpha1.GroupVersion.WithResource("networklinks"), "", links); err != nil {
			return nil, err
		}
	}
	if ptr.Deref(v.Services, false) {
		var err error
		if imports, err = t.namesOf(ctx, serviceImports, keys.ServiceImport, nil); err != nil {
			return nil, err
		}
	}
	return slices.Concat(
		holding("networks that are joined", "kubectl lodestone peer --pod-network Isolated, at home for each of them, parts them", links),
		holding("Services that are shared", "delete the ServiceExports of these names in all clusters; kubectl delete serviceimports -A -l "+
			keys.ServiceImport+" removes what is left where such a cluster is gone", imports)), nil
}

// namesOf adds the objects of a resource to names, each once; none if it is not served.
func (t *target) namesOf(ctx context.Context, resource schema.GroupVersionResource, selector string, names []string) ([]string, error) {
	list, err := t.dynamic.Resource(resource).List(ctx, metav1.ListOptions{LabelSelector: selector})
	switch {
	case apierrors.IsNotFound(err):
		return names, nil
	case err != nil:
		return nil, t.Explain("list "+resource.Resource, err)
	}
	for _, object := range list.Items {
		if name := object.GetNamespace() + "/" + object.GetName(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// removeProfiles deletes Lodestone's ClusterProfiles, which nobody keeps up to date any more, and says how many there were.
func (t *target) removeProfiles(ctx context.Context) error {
	profiles, ours := t.dynamic.Resource(clusterProfiles).Namespace(inventoryNamespace), metav1.ListOptions{
		LabelSelector: "x-k8s.io/cluster-manager=lodestone.dev"}
	list, err := profiles.List(ctx, ours)
	if err == nil && len(list.Items) > 0 {
		t.Say("removing %d ClusterProfiles of remote clusters", len(list.Items))
		err = profiles.DeleteCollection(ctx, metav1.DeleteOptions{}, ours)
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return t.Explain("delete clusterprofiles -n "+inventoryNamespace, err)
}
