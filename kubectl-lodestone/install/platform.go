package install

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Platform is what made a cluster, as far as that changes how Lodestone is installed there.
type Platform string

// The platforms that are told apart.
const (
	Kind      Platform = "kind"
	Kubeadm   Platform = "kubeadm"
	K3s       Platform = "k3s"
	EKS       Platform = "EKS"
	GKE       Platform = "GKE"
	AKS       Platform = "AKS"
	OpenShift Platform = "OpenShift"
	Other     Platform = "of a kind that is not known"
)

// Facts are what is read of a cluster before anything is decided.
type Facts struct {
	// Version is what the API server says of itself, such as v1.36.3-eks-3abb123.
	Version string
	// Groups are the groups of the API, without versions.
	Groups []string
	Nodes  []corev1.Node
	// KubeadmConfig says that kubeadm has left its ConfigMap.
	KubeadmConfig bool
	// Autoscaler says that Cluster Autoscaler has left its ConfigMap.
	Autoscaler bool
	// Mutating and Validating say that the API server serves such policies, in v1.
	Mutating, Validating bool
	// ServiceExports and ClusterProfiles say that it serves these: their definitions are others'.
	ServiceExports, ClusterProfiles bool
	// Corefile is what CoreDNS of kube-system is configured by; empty where there is none.
	Corefile string
}

// Detect returns the platform of a cluster. It is pure.
func Detect(facts Facts) Platform {
	some := func(is func(node *corev1.Node) bool) bool {
		return slices.ContainsFunc(facts.Nodes, func(node corev1.Node) bool { return is(&node) })
	}
	provider := func(prefix string) bool {
		return some(func(node *corev1.Node) bool { return strings.HasPrefix(node.Spec.ProviderID, prefix) })
	}
	label := func(key string) bool {
		return some(func(node *corev1.Node) bool { _, has := node.Labels[key]; return has })
	}
	switch {
	case slices.Contains(facts.Groups, "config.openshift.io"):
		return OpenShift
	case provider("kind://"):
		return Kind
	case strings.Contains(facts.Version, "+k3s"):
		return K3s
	case strings.Contains(facts.Version, "-eks-"), label("eks.amazonaws.com/nodegroup"), label("eks.amazonaws.com/compute-type"):
		return EKS
	case strings.Contains(facts.Version, "-gke."), label("cloud.google.com/gke-nodepool"):
		return GKE
	case label("kubernetes.azure.com/cluster"), label("kubernetes.azure.com/agentpool"):
		return AKS
	case facts.KubeadmConfig:
		return Kubeadm
	}
	return Other
}

// ownScheduler says that whoever administers the cluster can change kube-scheduler's configuration, on files of a node.
func (p Platform) ownScheduler() bool { return p == Kind || p == Kubeadm }

// tried says that tests of this project run on the platform.
func (p Platform) tried() bool { return p == Kind || p == Kubeadm }

// The minor versions of Kubernetes 1 that tests of this project run on: those of e2e/programs, and of the chart.
const oldestTried, newestTried = 34, 37

// untried says that tests of this project run on older, or newer, versions of Kubernetes alone; empty if they run on this one. It is pure.
func untried(version string) string {
	parsed, err := apiversion.ParseGeneric(version)
	if err != nil {
		return ""
	}
	if minor := int(parsed.Minor()); parsed.Major() == 1 && minor >= oldestTried && minor <= newestTried {
		return ""
	}
	return fmt.Sprintf("Lodestone has been tried on Kubernetes 1.%d to 1.%d, and not on %s (docs/support.md)", oldestTried, newestTried,
		version)
}

// foreignNodes returns the names of nodes that a virtual kubelet of others provides.
func foreignNodes(nodes []corev1.Node) (names []string) {
	for _, node := range nodes {
		if _, ours := node.Labels[keys.VirtualNodeRole]; ours {
			continue
		}
		if node.Labels["liqo.io/type"] == "virtual-node" || node.Labels["type"] == "virtual-kubelet" {
			names = append(names, node.Name)
		}
	}
	return names
}

var kubernetesVersion = regexp.MustCompile(`^v\d+\.\d+\.\d+`)

// upstream returns the version of Kubernetes without what a provider has added; empty if it has another form.
func upstream(version string) string { return kubernetesVersion.FindString(version) }
