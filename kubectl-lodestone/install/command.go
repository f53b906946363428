// Package install has the commands install and uninstall. command.go has the flags and the order of an installation, platform.go
// and values.go decide what is installed and are pure, manifests.go makes objects of that with the manifests of deploy/, apply.go
// brings them into a cluster, components.go has what the optional ones need and what keeps them from being taken away, record.go is
// what one run leaves for the next, rights.go compares roles for doctor, scheduler.go connects kube-scheduler with the extender,
// marker.go has it ask about no more pods than it must, kubeadm.go keeps that through upgrades, and uninstall.go removes all of it.
package install

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/component-base/version"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Namespaces in which the programs run.
const (
	homeNamespace   = "lodestone-system"
	remoteNamespace = "lodestone-remote"
)

func namespaceOf(remote bool) string {
	if remote {
		return remoteNamespace
	}
	return homeNamespace
}

// Options are the flags of install.
type Options struct {
	Remote bool
	// File has values, which those of flags go before.
	File   string
	Values Values
	// NoPullSecret takes away the one that an earlier run was given.
	NoPullSecret bool

	DryRun, Output  string
	Force           bool
	ConfigureOnNode bool
	NodeRoot        string
	Timeout         time.Duration
}

// New returns the command install.
func New(flags *genericclioptions.ConfigFlags, streams genericiooptions.IOStreams) *cobra.Command {
	o := &Options{DryRun: "none", NodeRoot: "/", Timeout: 5 * time.Minute}
	var replicas int32
	var virtualNodes, monitoring, network, services, clusterProfiles bool
	command := &cobra.Command{
		Use:   "install",
		Short: "Install or upgrade Lodestone in a cluster",
		Long: `Install brings Lodestone into the cluster of kubectl's current context, as a home
cluster, or with --remote as a cluster that others may use. It finds out what the
cluster is, chooses, says what it does, applies the manifests that are in this plugin,
waits until the programs run, and ends with the next command.

A second run upgrades to the version of this plugin and changes what its flags say;
what they do not say stays as it was chosen before. It needs the rights of a cluster
administrator. --dry-run=client changes nothing and prints a kustomization, which
GitOps tools and kubectl apply -k can take over.`,
		Example: `  # The remote cluster, by its owner, and then home
  kubectl lodestone install --context west --remote
  kubectl lodestone install --context home

  # Images of a registry of your own
  kubectl lodestone install --registry registry.example.com/lodestone --tag v0.1.0 --pull-secret registry

  # With the network fabric and shared Services, in both clusters
  kubectl lodestone install --context west --remote --network --services
  kubectl lodestone install --context home --network --services

  # For GitOps
  kubectl lodestone install --dry-run=client -o yaml > kustomization.yaml`,
		Args: cli.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for flag, into := range map[string]func(){
				"replicas":         func() { o.Values.Replicas = &replicas },
				"virtual-nodes":    func() { o.Values.VirtualNodes = &virtualNodes },
				"monitoring":       func() { o.Values.Monitoring = &monitoring },
				"network":          func() { o.Values.Network = &network },
				"services":         func() { o.Values.Services = &services },
				"cluster-profiles": func() { o.Values.ClusterProfiles = &clusterProfiles },
			} {
				if cmd.Flags().Changed(flag) {
					into()
				}
			}
			o.NoPullSecret = cmd.Flags().Changed("pull-secret") && o.Values.PullSecret == ""
			if err := o.complete(cmd); err != nil {
				return err
			}
			cluster, err := cli.ConnectHome(flags)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), o.Timeout)
			defer cancel()
			target, err := newTarget(cluster, cli.Reporter{Out: streams.ErrOut})
			if err != nil {
				return err
			}
			i := &installing{Options: *o, target: target, out: streams.Out, version: version.Get().GitVersion}
			if o.ConfigureOnNode {
				return i.configureOnNode(ctx, o.NodeRoot)
			}
			return i.run(ctx)
		},
	}
	f := command.Flags()
	f.BoolVar(&o.Remote, "remote", false, "install the remote agent, for a cluster that home clusters may use")
	f.StringVar(&o.File, "values", "", "file with values in YAML, under the names of docs/install.md; flags go before it")
	f.StringVar(&o.Values.Registry, "registry", "", "where images are, as HOST/PATH; default: "+DefaultRegistry)
	f.StringVar(&o.Values.Tag, "tag", "", "tag of the images; default: the version of this plugin")
	f.StringVar(&o.Values.PullSecret, "pull-secret", "", "name of a Secret with which images are pulled, in the namespace of the "+
		"programs; an empty name takes away the one that an earlier run was given")
	f.StringToStringVar(&o.Values.NodeSelector, "node-selector", nil, "labels of the nodes on which the programs run, such as pool=system")
	f.Int32Var(&replicas, "replicas", 2, "pods of each program; one leads, and the others wait to take over")
	f.StringVar(&o.Values.Scheduler, "scheduler", "", "extender, where kube-scheduler's configuration is yours, or second for a second "+
		"scheduler; default: what suits the cluster")
	f.StringVar(&o.Values.Certificates, "certificates", "", "who makes the extender's certificates: job or cert-manager; default: job")
	f.BoolVar(&virtualNodes, "virtual-nodes", true, "install Lodestone's virtual nodes; default: unless others provide such nodes")
	f.BoolVar(&monitoring, "monitoring", false, "install a dashboard and alerts for the Prometheus Operator")
	f.BoolVar(&network, "network", false, "install the network fabric, a pod with NET_ADMIN in the network of each node; "+
		"false takes it away")
	f.BoolVar(&services, "services", false, "install what shares Services between clusters; the definitions of the Multi-Cluster Services "+
		"API must be there; false takes it away")
	f.BoolVar(&clusterProfiles, "cluster-profiles", false, "show remote clusters as ClusterProfiles, whose definition must be there; "+
		"false takes that away")
	f.StringVar(&o.DryRun, "dry-run", o.DryRun, "client: print what would be installed and change nothing")
	f.StringVarP(&o.Output, "output", "o", "", "with --dry-run, yaml: print a kustomization")
	f.BoolVar(&o.Force, "force-conflicts", false, "set also fields that somebody else has set to another value")
	f.BoolVar(&o.ConfigureOnNode, "configure-scheduler", false, "on a control-plane node of kubeadm, as root, once Lodestone is installed: "+
		"have its kube-scheduler ask the extender")
	f.StringVar(&o.NodeRoot, "node-root", o.NodeRoot, "with --configure-scheduler, where the node's files are: /host in a pod of "+
		"kubectl debug")
	f.DurationVar(&o.Timeout, "timeout", o.Timeout, "how long to wait in all; the same command goes on")
	for name, values := range map[string][]string{
		"dry-run": {"none", "client"}, "output": {"yaml"}, "scheduler": {Extender, Second}, "certificates": {ByJob, ByCertManager},
	} {
		_ = command.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return command
}

// complete checks the flags, and reads the file that they name.
func (o *Options) complete(cmd *cobra.Command) error {
	switch {
	case o.DryRun != "none" && o.DryRun != "client":
		return cli.Misuse("--dry-run %q is not known: give none or client", o.DryRun)
	case o.Output != "" && o.Output != cli.YAML:
		return cli.Misuse("-o %q is not known here: give -o yaml", o.Output)
	case o.Output != "" && o.DryRun == "none":
		return cli.Misuse("--output is for what --dry-run=client prints: give that, too, or leave --output out")
	case o.Timeout <= 0:
		return cli.Misuse("--timeout must be more than 0: give a time such as 5m")
	}
	if !o.ConfigureOnNode && cmd.Flags().Changed("node-root") {
		return cli.Misuse("--node-root is for --configure-scheduler: give that, too, or leave --node-root out")
	}
	for _, home := range []string{"scheduler", "certificates", "virtual-nodes", "monitoring", "cluster-profiles"} {
		if o.Remote && cmd.Flags().Changed(home) {
			return cli.Misuse("--%s is for home clusters: leave it out, or --remote", home)
		}
	}
	if o.ConfigureOnNode {
		for _, other := range []string{"remote", "values", "registry", "tag", "pull-secret", "node-selector", "replicas", "scheduler",
			"certificates", "virtual-nodes", "monitoring", "network", "services", "cluster-profiles", "dry-run", "force-conflicts"} {
			if cmd.Flags().Changed(other) {
				return cli.Misuse("--configure-scheduler installs nothing: leave --%s out, and install first", other)
			}
		}
	}
	if o.File != "" {
		content, err := os.ReadFile(o.File)
		if err != nil {
			return cli.Misuse("--values cannot be read: %w", err)
		}
		var values Values
		if err := yaml.UnmarshalStrict(content, &values); err != nil {
			return cli.Misuse("--values %q is not understood: %w; the names are %s (docs/install.md says what each is)", o.File, err,
				strings.Join(ValueNames(), ", "))
		}
		o.Values = o.Values.over(values)
	}
	return o.Values.check()
}

// installing is a run of install.
type installing struct {
	Options
	*target
	out     io.Writer
	version string
}

func (i *installing) run(ctx context.Context) error {
	facts, err := i.observe(ctx)
	if err != nil {
		return err
	}
	namespace := namespaceOf(i.Remote)
	last, err := readRecord(ctx, i.Cluster, namespace)
	if err != nil {
		return err
	}
	if i.NoPullSecret {
		last.values.PullSecret = ""
	}
	values, notes, err := Choose(i.Values, last.values, facts, i.Remote, i.version)
	if err != nil {
		return err
	}
	if i.Output == cli.YAML {
		if inTree := ref(i.version); inTree == branch {
			notes = append(notes, "this plugin is of no release, so ref="+inTree+" is what the branch has when it is applied")
		}
		for _, note := range notes {
			i.Say("note: %s", note)
		}
		return i.printKustomization(values)
	}
	if err := i.mayTakeAway(ctx, last.values, values); err != nil {
		return err
	}
	i.printPlan(values, facts, last, notes)
	if i.DryRun == "client" {
		return nil
	}
	if err := i.mayAll(ctx); err != nil {
		return err
	}
	objects, err := Build(values, i.Remote)
	if err != nil {
		return err
	}
	if err := i.apply(ctx, objects, last, values); err != nil {
		return err
	}
	return i.printNext(ctx, values, facts)
}

// observe reads what Choose decides from.
func (i *installing) observe(ctx context.Context) (facts Facts, err error) {
	info, err := i.Client.Discovery().ServerVersion()
	if err != nil {
		return facts, i.Explain("ask for its version", err)
	}
	facts.Version = info.GitVersion
	groups, err := i.Client.Discovery().ServerGroups()
	if err != nil {
		return facts, i.Explain("ask what its API server serves", err)
	}
	for _, group := range groups.Groups {
		facts.Groups = append(facts.Groups, group.Name)
	}
	nodes, err := i.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return facts, i.Explain("list nodes", err)
	}
	facts.Nodes = nodes.Items
	switch _, err := i.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, kubeadmConfig, metav1.GetOptions{}); {
	case err == nil:
		facts.KubeadmConfig = true
	case !apierrors.IsNotFound(err):
		return facts, i.Explain("get configmap "+kubeadmConfig+" -n kube-system", err)
	}
	switch _, err := i.Client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, autoscalerStatus, metav1.GetOptions{}); {
	case err == nil:
		facts.Autoscaler = true
	case !apierrors.IsNotFound(err):
		return facts, i.Explain("get configmap "+autoscalerStatus+" -n kube-system", err)
	}
	const admission = "admissionregistration.k8s.io/v1"
	if facts.Mutating, err = i.Serves(admission, "mutatingadmissionpolicies"); err != nil {
		return facts, err
	}
	if facts.Validating, err = i.Serves(admission, "validatingadmissionpolicies"); err != nil {
		return facts, err
	}
	return facts, i.observeForComponents(ctx, &facts)
}

// apply brings the objects into the cluster, removes those that an earlier run has made and that are wanted no more, and waits
// until the programs run.
func (i *installing) apply(ctx context.Context, objects []*unstructured.Unstructured, last record, values Values) error {
	var wanted []reference
	for _, object := range objects {
		r := referenceTo(object)
		// Whatever is not served is known before anything is changed.
		if _, err := i.resource(r); err != nil {
			return err
		}
		wanted = append(wanted, r)
	}
	if !i.Force {
		if err := i.agree(ctx, objects); err != nil {
			return err
		}
	}
	var count changes
	for _, object := range objects {
		if object.GetKind() == "Namespace" {
			if err := i.target.apply(ctx, object, i.Force, &count); err != nil {
				return err
			}
		}
	}
	namespace := namespaceOf(i.Remote)
	// Should this run end early, the next one knows what it may have made.
	if err := writeRecord(ctx, i.Cluster, namespace, record{values: values, objects: union(last.objects, wanted)}); err != nil {
		return err
	}
	agentRuns := false
	if i.Remote {
		_, err := i.Client.AppsV1().Deployments(namespace).Get(ctx, "lodestone-remote-agent", metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return i.Explain("get deployment lodestone-remote-agent -n "+namespace, err)
		}
		agentRuns = err == nil
	}
	for _, phase := range phases(objects, agentRuns) {
		for _, object := range phase {
			if object.GetKind() == "Namespace" {
				continue
			}
			if err := i.target.apply(ctx, object, i.Force, &count); err != nil {
				return err
			}
		}
		for _, object := range phase {
			if rolls(object.GetKind()) {
				if err := i.awaitPrograms(ctx, object); err != nil {
					return err
				}
			}
		}
	}
	old := removable(last.objects, wanted)
	if slices.ContainsFunc(old, func(r reference) bool { return r.namespace == inventoryNamespace }) {
		// Before the rights, so that a run that ends here is made up for by the next one.
		if err := i.removeProfiles(ctx); err != nil {
			return err
		}
	}
	for _, r := range slices.Backward(old) {
		if err := i.remove(ctx, r); err != nil {
			return err
		}
		count.removed++
		i.Say("removed %s", r)
	}
	// What stays all the same is for uninstall.
	left := without(union(last.objects, wanted), old)
	if err := writeRecord(ctx, i.Cluster, namespace, record{values: values, objects: left}); err != nil {
		return err
	}
	i.Say("%s", count)
	return nil
}

// removable returns what an earlier run has made and is wanted no more. What holds objects of users stays. It is pure.
func removable(had, wanted []reference) []reference {
	return slices.DeleteFunc(without(had, wanted), func(r reference) bool {
		return r.kind.Kind == "Namespace" || r.kind.Kind == "CustomResourceDefinition" || r.kind.Kind == "StorageClass"
	})
}

func (i *installing) printKustomization(values Values) error {
	kustomization, err := Kustomization(values, i.Remote, inRepository(ref(i.version)))
	if err != nil {
		return err
	}
	output := cli.Output{Format: cli.YAML}
	return output.Write(i.out, kustomization)
}

// ref is where in the repository the manifests of a plugin are: its tag, or the branch where there is none.
func ref(version string) string {
	if released.MatchString(version) {
		return version
	}
	return branch
}

// branch is where manifests of no release are.
const branch = "main"

func (i *installing) printPlan(v Values, facts Facts, last record, notes []string) {
	table := tabwriter.NewWriter(i.out, 0, 0, 3, ' ', 0)
	row := func(what, text string) { fmt.Fprintf(table, "%s\t%s\n", what, text) }
	row("cluster", fmt.Sprintf("context %q, %s, Kubernetes %s", i.Context, Detect(facts), facts.Version))
	as := "home cluster"
	if i.Remote {
		as = "remote cluster, which serves nobody until kubectl lodestone peer lets a home in"
	}
	row("installed as", as)
	if last.found {
		row("there already", "with images "+last.values.Tag+": it becomes what is said here")
	}
	row("images", v.Registry+"/lodestone-…:"+v.Tag)
	if !i.Remote {
		row("scheduler", map[string]string{
			Extender: "kube-scheduler asks the extender, once you have configured it",
			Second:   "a second scheduler, " + cmp.Or(v.KubeSchedulerImage, "kube-scheduler") + " " + v.KubeScheduler,
		}[v.Scheduler])
		row("admission", map[string]string{
			Policies: "policies, which the API server evaluates",
			Webhook:  "a webhook, which evaluates the policies that API servers before Kubernetes 1.36 do not serve",
		}[v.Admission])
		if v.Certificates != "" {
			row("certificates", map[string]string{ByJob: "made and renewed by a Job", ByCertManager: "of cert-manager"}[v.Certificates])
		}
		row("virtual nodes", map[bool]string{true: "yes", false: "no"}[*v.VirtualNodes])
		if *v.Monitoring {
			row("monitoring", "dashboard and alerts")
		}
	}
	if ptr.Deref(v.Network, false) {
		row("network", "a pod with NET_ADMIN in the network of each node, in namespace "+keys.NetworkNamespace+
			", which Pod Security calls privileged")
	}
	if ptr.Deref(v.Services, false) {
		row("services", "those that ServiceExports name are shared between clusters")
	}
	if ptr.Deref(v.ClusterProfiles, false) {
		row("profiles", "remote clusters are shown as ClusterProfiles, in namespace "+inventoryNamespace)
	}
	if ptr.Deref(v.Marker, false) {
		row("marker", "yes: kube-scheduler need not ask about pods without claims")
	}
	if ptr.Deref(v.OpenShift, false) {
		row("OpenShift", "SecurityContextConstraints let movers be root, with a few capabilities; openShift: false in a file of --values "+
			"leaves them out")
	}
	if v.Replicas != nil {
		row("replicas", fmt.Sprint(*v.Replicas))
	}
	if len(v.NodeSelector) > 0 {
		row("nodes", metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: v.NodeSelector}))
	}
	if v.PullSecret != "" {
		row("pull secret", namespaceOf(i.Remote)+"/"+v.PullSecret)
	}
	_ = table.Flush()
	for _, note := range notes {
		fmt.Fprintf(i.out, "note: %s\n", note)
	}
}

func (i *installing) printNext(ctx context.Context, v Values, facts Facts) error {
	say := func(lines ...string) { fmt.Fprintln(i.out, strings.Join(lines, "\n")) }
	if i.Remote {
		say("Lodestone "+v.Tag+" runs. Next, let a home cluster in:", "",
			"  kubectl lodestone peer --context HOME --remote-context "+i.Context+" --namespaces SHOP")
		return nil
	}
	say("Lodestone "+v.Tag+" runs. Next, install it in a remote cluster, and peer with that:", "",
		"  kubectl lodestone install --context REMOTE --remote",
		"  kubectl lodestone peer --context "+i.Context+" --remote-context REMOTE --namespaces SHOP", "")
	if v.Scheduler == Second {
		say("Have the second scheduler place the pods of a namespace:", "",
			"  kubectl --context "+i.Context+" label namespace SHOP lodestone.dev/scheduler=enabled")
		return nil
	}
	marked, err := i.marks(ctx)
	if err != nil {
		return err
	}
	configuration, err := i.configuration(ctx, marked)
	if err != nil {
		return err
	}
	if Detect(facts).ownScheduler() {
		say("Have kube-scheduler ask the extender: on each control-plane node, one after another, as root:", "",
			"  kubectl lodestone install --configure-scheduler", "", "or by hand: start kube-scheduler with --config and this "+
				"configuration, and the certificate of Secret lodestone-extender-client "+
				"beside it (docs/scheduling.md#your-own-control-plane has the steps):", "")
	} else {
		say("Have kube-scheduler ask the extender: start it with --config and this configuration, and the certificate of Secret "+
			"lodestone-extender-client beside it (docs/scheduling.md#your-own-control-plane has the steps):", "")
	}
	say(strings.TrimSpace(string(configuration)))
	return nil
}
