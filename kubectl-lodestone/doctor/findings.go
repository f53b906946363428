package doctor

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	registrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/replica"
	versions "github.com/lodestone-storage/lodestone/kubectl-lodestone/version"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

// Level is how bad a finding is.
type Level string

// The levels.
const (
	OK      Level = "ok"
	Warning Level = "warning"
	Problem Level = "problem"
)

// Finding is what a check has found: one sentence, and what to do about it.
type Finding struct {
	Check string `json:"check"`
	Level Level  `json:"level"`
	Says  string `json:"says"`
	Do    string `json:"do,omitempty"`
}

// Facts are what is read of a home cluster. What could not be read is empty, and its checks are in Unread.
type Facts struct {
	// Now is the time of this machine, Server that of the API server, as it answered.
	Now, Server time.Time
	Plugin      string
	Programs    []versions.Program
	// Remote are the programs in the remote cluster that was named; nil without one.
	Remote []versions.Program
	// Managed says that kubectl lodestone install has made the installation. Then Missing and Differing name the objects that are
	// not there, or not as the plugin would make them.
	Managed            bool
	Missing, Differing []string
	// Home is what is installed at home, There what is in the remote cluster that was named.
	Home, There Installation
	// Policies are Lodestone's MutatingAdmissionPolicies, Webhooks the MutatingWebhookConfigurations in their place.
	Policies []string
	Webhooks []registrationv1.MutatingWebhookConfiguration
	// Confining are Lodestone's ValidatingAdmissionPolicies, Unbound those policies of both kinds that no binding puts in force.
	Confining, Unbound []string
	// Certificates are the PEM files tls.crt of Secrets, by the names of these.
	Certificates map[string][]byte
	// Asked says of each replica of the extender whether kube-scheduler has asked it since it started.
	Asked map[string]bool
	// Schedulers are the pods of kube-scheduler in the control plane; none where a provider runs it.
	Schedulers []corev1.Pod
	Classes    []*storagev1.StorageClass
	Remotes    []v1alpha1.RemoteCluster
	// Replicas are the VolumeReplicas of all namespaces.
	Replicas []v1alpha1.VolumeReplica
	Driver   *storagev1.CSIDriver
	// Rooms are the CSIStorageCapacity objects of Lodestone.
	Rooms      []storagev1.CSIStorageCapacity
	Namespaces []corev1.Namespace
	Nodes      []corev1.Node
	Leases     []coordinationv1.Lease
	// Unread are the checks that could not be made, with the reason.
	Unread map[string]string
}

// checks are made in this order.
var checks = []struct {
	name  string
	check func(Facts) []Finding
}{
	{"programs", programs}, {"manifests", manifests}, {"rights", rights}, {"components", components}, {"admission", admission},
	{"certificates", certificates}, {"extender", extender}, {"classes", classes}, {"capacity", capacity}, {"clusters", clusters},
	{"agents", agents}, {"replicas", replicas}, {"names", names}, {"networks", networks}, {"clocks", clocks},
}

// Findings makes all checks. Each has one finding at least. It is pure.
func Findings(f Facts) (all []Finding) {
	for _, c := range checks {
		if why, unread := f.Unread[c.name]; unread {
			all = append(all, Finding{Check: c.name, Level: Warning, Says: "it was not checked: " + why,
				Do: "ask an administrator to run this command, or mend what it says"})
			continue
		}
		for _, finding := range c.check(f) {
			finding.Check = c.name
			all = append(all, finding)
		}
	}
	return all
}

func ok(format string, args ...any) []Finding {
	return []Finding{{Level: OK, Says: fmt.Sprintf(format, args...)}}
}

// unready finds programs without a pod that is ready, or with too few of them.
func unready(programs []versions.Program, where string) (found []Finding) {
	for _, p := range programs {
		if !p.OnDemand && (p.Ready < p.Replicas || p.Ready == 0) {
			found = append(found, Finding{Level: Problem, Says: fmt.Sprintf("%d of %d pods of %s are ready%s", p.Ready, p.Replicas, p.Name, where),
				Do: "kubectl describe pods -n " + p.Namespace + where + " says why"})
		}
	}
	return found
}

func programs(f Facts) (found []Finding) {
	var other []string
	found = unready(f.Programs, "")
	for _, p := range f.Programs {
		if ours := p.Name != "lodestone-scheduler" || strings.Contains(p.Image, "lodestone-"); ours && p.Version != f.Plugin {
			other = append(other, p.Name+" "+p.Version)
		}
	}
	switch {
	case len(f.Programs) == 0:
		return []Finding{{Level: Problem, Says: "no program of Lodestone is there", Do: "kubectl lodestone install brings them"}}
	case len(other) > 0:
		found = append(found, Finding{Level: Warning, Says: fmt.Sprintf("this plugin is %s, and others run: %s", f.Plugin,
			strings.Join(other, ", ")),
			Do: "install the plugin of their version, or upgrade: kubectl lodestone check-upgrade, then kubectl lodestone install of this one, in " +
				"remote clusters first (docs/upgrade.md)"})
	case len(found) == 0:
		return ok("%d programs run %s", len(f.Programs), f.Plugin)
	}
	return found
}

func manifests(f Facts) (found []Finding) {
	if !f.Managed {
		return []Finding{{Level: Warning, Says: "policies and programs were not compared, because kubectl lodestone install did not make them",
			Do: "have what made them apply the manifests of this version again"}}
	}
	add := func(what string, names []string) {
		if len(names) > 0 {
			found = append(found, Finding{Level: Problem, Says: fmt.Sprintf("%s: %s", what, some(names)),
				Do: "kubectl lodestone install puts them right"})
		}
	}
	add("rights, policies or other objects are missing", f.Missing)
	add("objects are not as this version makes them", f.Differing)
	if len(found) == 0 {
		return ok("rights, policies and all other objects are as this version makes them")
	}
	return found
}

// gate is the policy, or the webhook in its place, without which moves refuse.
const gate = "lodestone-move-gate"

func admission(f Facts) []Finding {
	var called, untrusted []string
	for _, webhook := range f.Webhooks {
		called = append(called, webhook.Name)
		if slices.ContainsFunc(webhook.Webhooks, func(w registrationv1.MutatingWebhook) bool {
			return w.ClientConfig.Service != nil && len(w.ClientConfig.CABundle) == 0
		}) {
			untrusted = append(untrusted, webhook.Name)
		}
	}
	switch {
	case len(f.Confining) == 0:
		return []Finding{{Level: Problem, Says: "no ValidatingAdmissionPolicy confines Lodestone's programs", Do: "kubectl lodestone install " +
			"makes them, or have what made Lodestone apply its manifests again"}}
	case len(f.Unbound) > 0:
		return []Finding{{Level: Problem, Says: "policies that no binding puts in force: " + some(f.Unbound), Do: "kubectl lodestone install " +
			"makes the bindings, or have what made Lodestone apply its manifests again"}}
	case len(untrusted) > 0:
		return []Finding{{Level: Problem, Says: "API servers do not trust the webhook yet: " + some(untrusted) + " have no caBundle",
			Do: "kubectl logs -n lodestone-certificates -l app.kubernetes.io/component=certificates says why the Job has not written it, or " +
				"kubectl get certificates -A where cert-manager does (docs/install.md#kubernetes-before-136)"}}
	case !slices.Contains(f.Policies, gate) && !slices.Contains(called, gate):
		return []Finding{{Level: Problem, Says: "there is neither the policy nor the webhook " + gate + ", so moves refuse",
			Do: "kubectl lodestone install makes the one that this cluster can use"}}
	case slices.Contains(f.Policies, gate):
		return ok("the API server evaluates %d policies that change new objects", len(f.Policies))
	}
	return ok("the webhook evaluates %d policies that change new objects", len(called))
}

// some lists names, not too many of them.
func some(names []string) string {
	const most = 5
	slices.Sort(names)
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// renewed is how long before their end certificates should have been renewed.
const renewed = 7 * 24 * time.Hour

func certificates(f Facts) (found []Finding) {
	if len(f.Certificates) == 0 {
		return ok("no certificates are in use")
	}
	for _, name := range slices.Sorted(maps.Keys(f.Certificates)) {
		end, err := expiry(f.Certificates[name])
		switch {
		case err != nil:
			found = append(found, Finding{Level: Problem, Says: fmt.Sprintf("Secret %s has no certificate: %v", name, err),
				Do: "kubectl logs -n lodestone-certificates -l app.kubernetes.io/component=certificates says why the Job has not made it, or " +
					"kubectl get certificates -A where cert-manager does (docs/security.md#certificates)"})
		case end.Before(f.Now.Add(renewed)):
			found = append(found, Finding{Level: Problem, Says: fmt.Sprintf("the certificate in Secret %s ends at %s", name,
				end.UTC().Format(time.RFC3339)),
				Do: "kubectl get cronjob,jobs -n lodestone-certificates shows whether the CronJob that renews it runs, and kubectl logs -n " +
					"lodestone-certificates -l app.kubernetes.io/component=certificates why it did not (docs/security.md#certificates)"})
		}
	}
	if len(found) == 0 {
		return ok("%d certificates are valid for a week and longer", len(f.Certificates))
	}
	return found
}

// expiry returns when the first certificate of a PEM file ends.
func expiry(content []byte) (time.Time, error) {
	block, _ := pem.Decode(content)
	if block == nil {
		return time.Time{}, fmt.Errorf("it is empty")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return time.Time{}, fmt.Errorf("it cannot be read: %w", err)
	}
	return certificate.NotAfter, nil
}

// marker is the policy, or the webhook in its place, that marks pods for kube-scheduler.
const marker = "lodestone-marker"

// stumbling returns the kube-schedulers that have no configuration, and so find no node for a pod that is marked; none if pods are not.
func stumbling(f Facts) (names []string) {
	isMarker := func(webhook registrationv1.MutatingWebhookConfiguration) bool { return webhook.Name == marker }
	if !slices.Contains(f.Policies, marker) && !slices.ContainsFunc(f.Webhooks, isMarker) {
		return nil
	}
	for _, pod := range f.Schedulers {
		configured := false
		for _, container := range pod.Spec.Containers {
			configured = configured || slices.ContainsFunc(slices.Concat(container.Command, container.Args), func(argument string) bool {
				return argument == "--config" || strings.HasPrefix(argument, "--config=")
			})
		}
		if !configured {
			names = append(names, pod.Name)
		}
	}
	return names
}

func extender(f Facts) []Finding {
	if names := stumbling(f); len(names) > 0 {
		return []Finding{{Level: Problem, Says: "pods with claims are marked, and find no node while a kube-scheduler without a configuration " +
			"leads: " + some(names), Do: "run kubectl lodestone install --configure-scheduler on their nodes " +
			"(docs/scheduling.md#pods-that-cost-nothing)"}}
	}
	if len(f.Asked) == 0 {
		return []Finding{{Level: Problem, Says: "no replica of the extender answers",
			Do: "kubectl get pods -n lodestone-system shows how they are"}}
	}
	for _, asked := range f.Asked {
		if asked {
			return ok("kube-scheduler asks it")
		}
	}
	if slices.ContainsFunc(f.Programs, func(p versions.Program) bool { return p.Name == "lodestone-scheduler" }) {
		return []Finding{{Level: Warning, Says: "the second scheduler has asked it nothing since it started", Do: "kubectl label namespace " +
			"SHOP lodestone.dev/scheduler=enabled has it place the pods of a namespace; if none was made there since, this means nothing"}}
	}
	return []Finding{{Level: Warning,
		Says: "no kube-scheduler has asked it since it started: new claims may go to clusters that cannot take them",
		Do: "run kubectl lodestone install --configure-scheduler on each node of the control plane, or add what kubectl lodestone install " +
			"prints under extenders to kube-scheduler's configuration by hand (docs/scheduling.md#your-own-control-plane); " +
			"if no pod was scheduled since, this means nothing"}}
}

func classes(f Facts) (found []Finding) {
	virtual, fallback := 0, false
	for _, class := range f.Classes {
		if !virtualclass.Is(class) {
			continue
		}
		virtual++
		if _, err := virtualclass.Parse(class); err != nil {
			found = append(found, Finding{Level: Problem, Says: "a virtual class cannot be used", Do: err.Error()})
		}
		fallback = fallback || class.Parameters[keys.LocalClass] == ""
	}
	offered := virtualclass.Offer(f.Classes)
	switch {
	case virtual == 0:
		found = append(found, Finding{Level: Problem, Says: "there is no virtual class",
			Do: "make a StorageClass with provisioner " + keys.Driver + " and " +
				"volumeBindingMode WaitForFirstConsumer; kubectl lodestone install makes one, named lodestone (docs/classes.md)"})
	case len(offered) == 0:
		found = append(found, Finding{Level: Problem, Says: "home has no real class, so no claim gets a volume here",
			Do: "install a storage driver"})
	case fallback && !slices.ContainsFunc(offered, func(o v1alpha1.OfferedClass) bool { return o.Default }):
		found = append(found, Finding{Level: Problem, Says: "a virtual class names no real class of home, and none is the default",
			Do: "mark one as default, or name one in the parameter " + keys.LocalClass})
	}
	if len(found) == 0 {
		return ok("%d virtual classes, and %d real ones at home", virtual, len(offered))
	}
	return found
}

func capacity(f Facts) []Finding {
	if f.Driver == nil || f.Driver.Spec.StorageCapacity == nil || !*f.Driver.Spec.StorageCapacity {
		return ok("kube-scheduler does not ask how much room there is")
	}
	known := map[string]bool{}
	for _, room := range f.Rooms {
		known[room.StorageClassName] = true
	}
	var found []Finding
	for _, class := range f.Classes {
		if virtualclass.Is(class) && !known[class.Name] {
			found = append(found, Finding{Level: Problem,
				Says: fmt.Sprintf("nothing is published of the room of class %s, so kube-scheduler finds none "+
					"anywhere", class.Name), Do: "kubectl logs -n lodestone-system deployment/lodestone-provisioner says why (docs/classes.md#room)"})
		}
	}
	if len(found) == 0 {
		return ok("the room of each virtual class is published")
	}
	return found
}

func clusters(f Facts) (found []Finding) {
	if len(f.Remotes) == 0 {
		return ok("there are none: kubectl lodestone peer lets home into one")
	}
	for _, remote := range f.Remotes {
		condition := meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.Ready)
		switch {
		case condition == nil:
			found = append(found, Finding{Level: Problem, Says: fmt.Sprintf("nothing is known of remote cluster %s", remote.Name),
				Do: "see whether the provisioner runs"})
		case condition.Status != metav1.ConditionTrue:
			found = append(found, Finding{Level: Problem, Says: fmt.Sprintf("remote cluster %s is not Ready (%s): %s", remote.Name, condition.Reason,
				condition.Message), Do: whatToDo(condition.Reason)})
		default:
			found = append(found, besideVolumes(remote)...)
		}
	}
	if len(found) == 0 {
		return ok("%d remote clusters are Ready", len(f.Remotes))
	}
	return found
}

// besideVolumes finds what is wrong with a remote cluster that is Ready: its volumes do not depend on its virtual node, and do not yet
// feel that its credentials end.
func besideVolumes(remote v1alpha1.RemoteCluster) (found []Finding) {
	node := meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.VirtualNode)
	if node != nil && node.Status != metav1.ConditionTrue && remote.Spec.VirtualNode != v1alpha1.VirtualNodeDisabled {
		found = append(found, Finding{Level: Problem,
			Says: fmt.Sprintf("the virtual node of remote cluster %s takes no pods (%s): %s", remote.Name, node.Reason, node.Message),
			Do:   "kubectl lodestone doctor --remote-context says how its agent is (docs/virtual-nodes.md#when-it-is-ready)"})
	}
	credentials := meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.CredentialsValid)
	if credentials != nil && (credentials.Reason == "ExpiresSoon" || credentials.Reason == "RenewalFailed") {
		found = append(found, Finding{Level: Warning,
			Says: fmt.Sprintf("remote cluster %s will be lost to home: %s", remote.Name, credentials.Message),
			Do:   "kubectl lodestone peer --renew brings new ones (docs/remote-clusters.md#conditions)"})
	}
	return found
}

// agents finds what is wrong with the programs of the remote cluster that was named.
func agents(f Facts) []Finding {
	switch {
	case f.Remote == nil:
		return ok("no remote cluster was looked at: give --remote-context to look at one")
	case len(f.Remote) == 0:
		return []Finding{{Level: Problem, Says: "the remote agent is not installed in the remote cluster",
			Do: "kubectl lodestone install --remote with the context of that cluster brings it"}}
	}
	found := unready(f.Remote, " in the remote cluster")
	known := versions.Versions{Plugin: versions.Plugin{Version: f.Plugin}, Home: f.Programs}
	ofHome := versions.Warnings(known)
	known.Remote = f.Remote
	for _, warning := range versions.Warnings(known) {
		if !slices.Contains(ofHome, warning) {
			found = append(found, Finding{Level: Warning, Says: warning,
				Do: "upgrade remote clusters first, then home (docs/support.md#programs-of-one-version)"})
		}
	}
	if len(found) == 0 {
		return ok("%d programs of the remote cluster are ready", len(f.Remote))
	}
	return found
}

// replicas finds those that are late, or that something keeps from being made. The first few are told of, with what is wrong.
func replicas(f Facts) (found []Finding) {
	const most = 5
	behind := 0
	for i := range f.Replicas {
		c := replica.Of(&f.Replicas[i], f.Now)
		if !c.Behind() {
			continue
		}
		if behind++; behind > most {
			continue
		}
		text := "has no sealed version"
		if c.Sealed != nil {
			text = fmt.Sprintf("has a copy that is %s old, with an RPO of %s", c.Lag(f.Now), replica.Short(c.RPO.Duration))
		}
		level := Problem
		if c.Sealed != nil && !c.Refused() && f.Now.Sub(c.Sealed.Time) < 2*c.RPO.Duration { // as the alert
			level = Warning
		}
		found = append(found, Finding{Level: level, Says: fmt.Sprintf("VolumeReplica %s/%s %s in cluster %s (%s): %s", c.Namespace, c.Name, text,
			c.Standby, c.Words(), c.Message), Do: "docs/replicas.md#what-the-conditions-say has what to do"})
	}
	switch more := behind - most; {
	case behind == 0:
		return ok("of %d VolumeReplicas none is late, suspect or refused", len(f.Replicas))
	case more > 0:
		found = append(found, Finding{Level: Warning, Says: fmt.Sprintf("%d more VolumeReplicas are late, suspect or refused", more),
			Do: "kubectl lodestone replicate status -A says why"})
	}
	return found
}

// whatToDo says what to do about a remote cluster that is not Ready for a reason. Where that is not all there is to it, the message of
// the condition says more.
func whatToDo(reason string) string {
	do, ok := map[string]string{
		"Checking":       "wait a few seconds",
		"Syncing":        "wait a few seconds",
		"BadKubeconfig":  "correct the Secret with its kubeconfig, or kubectl lodestone peer --renew",
		"NotReachable":   "bring its API server back, or correct the address in the Secret with its kubeconfig",
		"NotAuthorized":  "kubectl lodestone peer --renew, and see that its owner has applied deploy/remote of this version",
		"PointsHome":     "put the kubeconfig of the other cluster into the Secret",
		"Duplicate":      "delete one of the two RemoteClusters",
		"OtherCluster":   "put the kubeconfig of the cluster that holds the volumes back into the Secret",
		"TooMuch":        "see whether it really has so many volumes and claims; it is asked again after 5 minutes",
		"HomeNotInForce": "see that no copy of this home cluster runs, and then kubectl lodestone confirm",
		"Leaving":        "delete what it still holds, or kubectl lodestone unpeer",
	}[reason]
	if !ok {
		do = "do what the message says"
	}
	return do + " (docs/remote-clusters.md#conditions)"
}

func networks(f Facts) (found []Finding) {
	for _, remote := range f.Remotes {
		if remote.Spec.PodNetwork == v1alpha1.Routed && len(remote.Spec.PodCIDRs) == 0 {
			found = append(found, Finding{Level: Problem,
				Says: fmt.Sprintf("remote cluster %s is Routed, and has no pod ranges: its pods get no addresses "+
					"at home", remote.Name), Do: "kubectl lodestone peer --pod-cidrs sets them"})
		}
		ready := meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.NetworkReady)
		switch {
		case remote.Spec.PodNetwork != v1alpha1.Fabric, ready != nil && ready.Status == metav1.ConditionTrue:
		case ready == nil:
			found = append(found, Finding{Level: Problem, Says: fmt.Sprintf("nothing is known of the network to remote cluster %s", remote.Name),
				Do: "see whether the pods in namespace lodestone-network run, here and there"})
		default:
			found = append(found, Finding{Level: Problem, Says: fmt.Sprintf("the network to remote cluster %s does not work (%s): %s", remote.Name,
				ready.Reason, ready.Message), Do: "kubectl logs -n lodestone-network daemonset/lodestone-network says more, here and there"})
		}
	}
	if len(found) == 0 {
		return ok("the networks that remote clusters name can be used")
	}
	return found
}

// Clocks that differ by more are said.
const (
	skew = 10 * time.Second
	// silent is how long a node that is Ready may not have renewed its lease.
	silent = time.Minute
)

func clocks(f Facts) (found []Finding) {
	if d := f.Now.Sub(f.Server); d.Abs() > skew {
		found = append(found, Finding{Level: Warning, Says: fmt.Sprintf("this machine and the API server are %s apart",
			replica.Short(d.Abs().Round(time.Second))),
			Do: "set the clock of the one that is wrong: certificates and tokens depend on it"})
	}
	ready := map[string]bool{}
	for _, node := range f.Nodes {
		for _, condition := range node.Status.Conditions {
			ready[node.Name] = ready[node.Name] || condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
		}
	}
	for _, lease := range f.Leases {
		if lease.Spec.RenewTime == nil || !ready[lease.Name] {
			continue
		}
		switch ahead := lease.Spec.RenewTime.Sub(f.Server); {
		case ahead > skew:
			found = append(found, Finding{Level: Warning, Says: fmt.Sprintf("the clock of node %s is %s ahead", lease.Name,
				replica.Short(ahead.Round(time.Second))),
				Do: "set it"})
		case ahead < -silent:
			found = append(found, Finding{Level: Warning, Says: fmt.Sprintf("node %s is Ready, and its last sign of life is of %s ago", lease.Name,
				replica.Short((-ahead).Round(time.Second))), Do: "see whether its clock is right"})
		}
	}
	if len(found) == 0 {
		return ok("this machine, the API server and %d nodes agree", len(ready))
	}
	return found
}
