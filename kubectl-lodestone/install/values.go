package install

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
)

// Ways in which pods come to the extender.
const (
	// Extender: kube-scheduler of the control plane asks it.
	Extender = "extender"
	// Second: a kube-scheduler of Lodestone's own asks it, for namespaces that are labelled.
	Second = "second"
)

// Who changes new pods, claims and DaemonSets.
const (
	// Policies are evaluated by the API server.
	Policies = "policies"
	// Webhook evaluates the same, for API servers that serve no MutatingAdmissionPolicies.
	Webhook = "webhook"
)

// Who makes the certificates of the extender and of kube-scheduler.
const (
	ByJob         = "job"
	ByCertManager = "cert-manager"
)

// Values are what can be chosen of an installation: by flags, in a file, or by an earlier run. What is left out is chosen.
type Values struct {
	// Registry and Tag say where images are: <registry>/lodestone-<program>:<tag>.
	Registry string `json:"registry,omitempty"`
	Tag      string `json:"tag,omitempty"`
	// PullSecret is a Secret of the namespace in which the programs run; whoever installs makes it.
	PullSecret   string            `json:"pullSecret,omitempty"`
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	Replicas     *int32            `json:"replicas,omitempty"`
	// Resources are by program: provisioner, extender, virtualnode, scheduler, webhook, remote-agent, network.
	Resources map[string]corev1.ResourceRequirements `json:"resources,omitempty"`
	// Scheduler is Extender or Second, Certificates ByJob or ByCertManager.
	Scheduler    string `json:"scheduler,omitempty"`
	Certificates string `json:"certificates,omitempty"`
	// KubeScheduler is the version of the image of Second, KubeSchedulerImage the image without it; Kubernetes' own if it is empty.
	KubeScheduler      string `json:"kubeScheduler,omitempty"`
	KubeSchedulerImage string `json:"kubeSchedulerImage,omitempty"`
	// Admission is Policies or Webhook.
	Admission    string `json:"admission,omitempty"`
	VirtualNodes *bool  `json:"virtualNodes,omitempty"`
	Monitoring   *bool  `json:"monitoring,omitempty"`
	// Network is the network fabric, Services the Multi-Cluster Services API, both of home and of remote clusters; ClusterProfiles has
	// home show its remote clusters as such.
	Network         *bool `json:"network,omitempty"`
	Services        *bool `json:"services,omitempty"`
	ClusterProfiles *bool `json:"clusterProfiles,omitempty"`
	// Marker has new pods with claims marked, for a kube-scheduler that asks the extender about no others; without it, once every
	// kube-scheduler overlooks the marker.
	Marker *bool `json:"marker,omitempty"`
	// OpenShift lets movers be what they are where SecurityContextConstraints are; without it, where the cluster serves these.
	OpenShift *bool `json:"openShift,omitempty"`
}

// ValueNames are the names of all values in a file.
func ValueNames() (names []string) {
	values := reflect.TypeFor[Values]()
	for i := range values.NumField() {
		name, _, _ := strings.Cut(values.Field(i).Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}

// over returns values with those of others where they have none.
func (v Values) over(others Values) Values {
	pick := func(a, b string) string {
		if a != "" {
			return a
		}
		return b
	}
	v.Registry, v.Tag, v.PullSecret = pick(v.Registry, others.Registry), pick(v.Tag, others.Tag), pick(v.PullSecret, others.PullSecret)
	v.Scheduler, v.Certificates = pick(v.Scheduler, others.Scheduler), pick(v.Certificates, others.Certificates)
	v.KubeScheduler, v.Admission = pick(v.KubeScheduler, others.KubeScheduler), pick(v.Admission, others.Admission)
	v.KubeSchedulerImage = pick(v.KubeSchedulerImage, others.KubeSchedulerImage)
	if v.NodeSelector == nil {
		v.NodeSelector = others.NodeSelector
	}
	if v.Replicas == nil {
		v.Replicas = others.Replicas
	}
	if v.Resources == nil {
		v.Resources = others.Resources
	}
	for _, choice := range []struct{ of, other **bool }{
		{&v.VirtualNodes, &others.VirtualNodes}, {&v.Monitoring, &others.Monitoring}, {&v.Network, &others.Network},
		{&v.Services, &others.Services}, {&v.ClusterProfiles, &others.ClusterProfiles}, {&v.Marker, &others.Marker},
		{&v.OpenShift, &others.OpenShift},
	} {
		if *choice.of == nil {
			*choice.of = *choice.other
		}
	}
	return v
}

var (
	registryForm = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*(:[0-9]+)?(/[a-z0-9][a-z0-9._-]*)*$`)
	tagForm      = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
)

// check returns an error for a value that cannot be used. It is pure.
func (v Values) check() error {
	switch {
	case v.Registry != "" && !registryForm.MatchString(v.Registry):
		return cli.Misuse("--registry %q is not a registry: give HOST/PATH, such as registry.example.com/lodestone", v.Registry)
	case v.KubeSchedulerImage != "" && !registryForm.MatchString(v.KubeSchedulerImage):
		return cli.Misuse("kubeSchedulerImage %q is not an image: give HOST/PATH without a tag, such as registry.example.com/kube-scheduler",
			v.KubeSchedulerImage)
	case v.Tag != "" && !tagForm.MatchString(v.Tag):
		return cli.Misuse("--tag %q is not a tag: give that of the images, such as v0.1.0", v.Tag)
	case v.PullSecret != "" && len(validation.IsDNS1123Subdomain(v.PullSecret)) > 0:
		return cli.Misuse("--pull-secret %q cannot be a name: names have lower-case letters, digits, '-' and '.'", v.PullSecret)
	case v.Replicas != nil && (*v.Replicas < 1 || *v.Replicas > 10):
		return cli.Misuse("--replicas %d cannot be used: give 1 to 10; one leads, the others wait to take over", *v.Replicas)
	case v.Scheduler != "" && v.Scheduler != Extender && v.Scheduler != Second:
		return cli.Misuse("--scheduler %q is not known: give %s or %s", v.Scheduler, Extender, Second)
	case v.Certificates != "" && v.Certificates != ByJob && v.Certificates != ByCertManager:
		return cli.Misuse("--certificates %q is not known: give %s or %s", v.Certificates, ByJob, ByCertManager)
	case v.Admission != "" && v.Admission != Policies && v.Admission != Webhook:
		return cli.Misuse("admission %q is not known: give %s or %s", v.Admission, Policies, Webhook)
	}
	for key, value := range v.NodeSelector {
		if len(validation.IsQualifiedName(key)) > 0 || len(validation.IsValidLabelValue(value)) > 0 {
			return cli.Misuse("--node-selector %q is not a label: give KEY=VALUE, such as pool=system", key+"="+value)
		}
	}
	for name := range v.Resources {
		if !slices.Contains(names, name) {
			return cli.Misuse("resources of %q are given, and there is no such program: there are %s", name, strings.Join(names, ", "))
		}
	}
	return nil
}

// names are those of the programs that can be given resources.
var names = []string{"extender", "network", "provisioner", "remote-agent", "scheduler", "virtualnode", "webhook"}

// constraints is the group of SecurityContextConstraints.
const constraints = "security.openshift.io"

// DefaultRegistry is where the images of releases are.
const DefaultRegistry = "ghcr.io/lodestone-storage"

// Choose completes the values that were given: with those of the installation that is there, and then for what the cluster is.
// version is that of this plugin, which is the one that is installed if it is a release. The notes are what to know of the
// choice. It is pure.
func Choose(given, recorded Values, facts Facts, remote bool, version string) (v Values, notes []string, err error) {
	// What follows from a version is not kept from one run to the next.
	lastTag := recorded.Tag
	recorded.Tag, recorded.KubeScheduler, recorded.Admission = "", "", ""
	v = given.over(recorded)
	switch isRelease := released.MatchString(version); {
	case v.Tag == "" && isRelease:
		v.Tag = version
	case v.Tag == "" && lastTag != "":
		v.Tag = lastTag
	case v.Tag == "":
		return v, nil, cli.Misuse("say which images to take, with --tag: this plugin, %s, is of no release", version)
	}
	v = v.over(Values{Registry: DefaultRegistry})
	platform := Detect(facts)
	if !platform.tried() {
		notes = append(notes, fmt.Sprintf("Lodestone has not been tried on a cluster %s: try it with data that you can lose, and look with "+
			"kubectl lodestone "+
			"doctor (docs/support.md says what was seen where)", platform.adjective()))
	}
	if text := untried(facts.Version); text != "" {
		notes = append(notes, text)
	}
	constrained := slices.Contains(facts.Groups, constraints)
	if v.OpenShift == nil && constrained {
		v.OpenShift = ptr.To(true)
	}
	if ptr.Deref(v.OpenShift, false) && !constrained {
		return v, nil, fmt.Errorf("%s serves no SecurityContextConstraints: leave openShift out of the values", facts.Version)
	}
	if remote {
		if !facts.Validating {
			return v, nil, fmt.Errorf("%s serves no ValidatingAdmissionPolicies (v1), which confine home clusters: the remote agent serves "+
				"nobody without; upgrade the cluster to Kubernetes 1.30 or later", facts.Version)
		}
		v.Scheduler, v.Certificates, v.KubeScheduler, v.Admission = "", "", "", ""
		v.KubeSchedulerImage, v.VirtualNodes, v.Monitoring, v.ClusterProfiles, v.Marker = "", nil, nil, nil, nil
		more, err := v.checkComponents(facts, true)
		return v, append(notes, more...), err
	}
	if !facts.Validating {
		return v, nil, fmt.Errorf("%s serves no ValidatingAdmissionPolicies (v1), which confine Lodestone's own programs: upgrade the "+
			"cluster to Kubernetes 1.30 or later", facts.Version)
	}
	if v.Admission == Policies && !facts.Mutating {
		return v, nil, fmt.Errorf("%s serves no MutatingAdmissionPolicies (v1): leave admission out of the values, so that a webhook does their "+
			"work, or upgrade the cluster to Kubernetes 1.36 or later", facts.Version)
	}
	more, err := v.chooseForHome(platform, facts)
	if err != nil {
		return v, nil, err
	}
	if why := cannotMark(v, facts); why != "" && ptr.Deref(v.Marker, false) {
		if given.Marker != nil {
			return v, nil, fmt.Errorf("pods cannot be marked here, because %s: leave marker out of the values", why)
		}
		v.Marker = nil
		note := "pods are marked no more, because " + why
		if v.Scheduler == Extender {
			note += ": run kubectl lodestone install --configure-scheduler again on each control-plane node, so that kube-scheduler asks about " +
				"every pod"
		}
		more = append(more, note)
	}
	ofComponents, err := v.checkComponents(facts, false)
	return v, slices.Concat(notes, more, ofComponents), err
}

// released matches the versions of releases.
var released = regexp.MustCompile(`^v(0\.0\.[1-9]\d*|0\.[1-9]\d*\.\d+|[1-9]\d*\.\d+\.\d+)(-(alpha|beta|rc)\.\d+)?$`)

func (v *Values) chooseForHome(platform Platform, facts Facts) (notes []string, err error) {
	if v.Scheduler == "" {
		v.Scheduler = Second
		if platform.ownScheduler() {
			v.Scheduler = Extender
		}
	}
	if v.Admission == "" {
		v.Admission = Webhook
		if facts.Mutating {
			v.Admission = Policies
		}
	}
	// The second scheduler asks the extender of its own pod, without certificates.
	if v.Scheduler == Second && v.Admission == Policies {
		v.Certificates = ""
	} else {
		v.Certificates = cmp.Or(v.Certificates, ByJob)
	}
	if v.Certificates == ByCertManager && !slices.Contains(facts.Groups, "cert-manager.io") {
		return nil, fmt.Errorf("cert-manager is not installed in this cluster: install it first, or leave --certificates out, so that a Job " +
			"makes the certificates")
	}
	switch v.Scheduler {
	case Extender:
		v.KubeScheduler, v.KubeSchedulerImage = "", ""
	case Second:
		if v.KubeScheduler == "" {
			v.KubeScheduler = upstream(facts.Version)
		}
		if v.KubeScheduler == "" {
			return nil, fmt.Errorf("the version %q of this cluster names no version of Kubernetes: give kubeScheduler in a file of --values",
				facts.Version)
		}
		notes = append(notes, "only pods of namespaces that are labelled lodestone.dev/scheduler=enabled go to the second scheduler")
	}
	if v.VirtualNodes == nil {
		foreign := foreignNodes(facts.Nodes)
		wanted := len(foreign) == 0
		v.VirtualNodes = &wanted
		if !wanted {
			notes = append(notes, fmt.Sprintf("virtual nodes are left out, because node %q is of another virtual kubelet: --virtual-nodes installs "+
				"them all the same", foreign[0]))
		}
	}
	if v.Monitoring == nil {
		v.Monitoring = new(bool)
	}
	if *v.Monitoring && !slices.Contains(facts.Groups, "monitoring.coreos.com") {
		return nil, fmt.Errorf("the Prometheus Operator is not installed in this cluster: install it first, or leave --monitoring out")
	}
	return notes, nil
}

// adjective is the platform behind the words "a cluster".
func (p Platform) adjective() string {
	if p == Other {
		return string(p)
	}
	return "of " + string(p)
}
