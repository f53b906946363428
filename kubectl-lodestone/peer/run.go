package peer

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/credentials"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/daemonsets"
	networkv1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/network/v1alpha1"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// virtualNode is the name of the Deployment that runs pods in remote clusters.
const virtualNode = "lodestone-virtualnode"

// attempts is how often all steps are repeated when somebody else wrote the same objects meanwhile.
const attempts = 4

// peering is one run of the command.
type peering struct {
	Options
	cli.Reporter
	home, remote *cli.Cluster
	homeUID      string
	remoteUID    string
	out          genericiooptions.IOStreams
	printed      map[string]bool
}

// run repeats all steps while somebody else writes the same objects: each step skips what was done
// already.
func (p *peering) run(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		err := p.runOnce(ctx)
		if attempt == attempts || !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
}

func (p *peering) runOnce(ctx context.Context) error {
	situation, err := p.observe(ctx)
	if err != nil {
		return err
	}
	plan, err := Decide(p.Options, situation)
	if err != nil {
		return err
	}
	secret, err := p.readSecret(ctx, plan)
	if err != nil {
		return err
	}
	if secret != nil {
		if err := plan.checkSecret(secret, p.remoteUID); err != nil {
			return err
		}
	}
	have := plan.credentialsIn(secret)
	server, err := p.server(have)
	if err != nil {
		return err
	}
	for _, note := range plan.Notes {
		p.sayOnce("note: " + note)
	}
	if p.DryRun == "client" {
		return p.print(plan, server, have)
	}
	if err := p.checkRights(ctx, plan); err != nil {
		return err
	}
	if err := p.execute(ctx, plan, homeLogin{secret: secret, found: have}, server); err != nil {
		return err
	}
	_, err = fmt.Fprintf(p.out.Out, "remotecluster.lodestone.dev/%s peered\n", plan.Name)
	return err
}

// observe reads the state of both clusters.
func (p *peering) observe(ctx context.Context) (s Situation, err error) {
	s.HomeContext, s.RemoteContext = p.home.Context, p.remote.Context
	if s.HomeUID, err = p.home.UID(ctx); err != nil {
		return s, err
	}
	if s.RemoteUID, err = p.remote.UID(ctx); err != nil {
		return s, err
	}
	p.homeUID, p.remoteUID = s.HomeUID, s.RemoteUID
	if s.HomeUID == s.RemoteUID {
		return s, nil // nothing else matters
	}
	if err := p.installed(ctx); err != nil {
		return s, err
	}
	remotes, err := p.home.Remotes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return s, p.home.Explain("list RemoteClusters", err)
	}
	s.Remotes = remotes.Items
	homes, err := p.remote.Remote.HomeClusters().List(ctx, metav1.ListOptions{})
	if err != nil {
		return s, p.remote.Explain("list HomeClusters", err)
	}
	s.Homes = homes.Items
	// This is only for a note: home need not be a remote cluster of another home.
	if guests, err := p.home.Remote.HomeClusters().List(ctx, metav1.ListOptions{}); err == nil {
		s.Guests = guests.Items
	}
	s.HomeRanges, s.RemoteRanges = podRanges(ctx, p.home), podRanges(ctx, p.remote)
	s.HomeHosts, s.RemoteHosts = hosts(ctx, p.home), hosts(ctx, p.remote)
	s.ProvisionerID, err = p.home.ProvisionerID(ctx, p.Namespace)
	return s, err
}

// installed checks that each cluster has its part of Lodestone.
func (p *peering) installed(ctx context.Context) error {
	ok, err := p.home.Serves(v1alpha1.GroupVersion.String(), "remoteclusters")
	switch {
	case err != nil:
		return err
	case !ok:
		return fmt.Errorf("Lodestone is not installed in the home cluster (context %q): install it there first, kubectl --context %s apply -k "+
			"deploy/overlays/release", p.home.Context, p.home.Context)
	}
	if err := p.home.RequireNamespace(ctx, p.Namespace); err != nil {
		return fmt.Errorf("%w; give --lodestone-namespace if Lodestone runs in another namespace", err)
	}
	ok, err = p.remote.Serves(remotev1alpha1.GroupVersion.String(), "homeclusters")
	switch {
	case err != nil:
		return err
	case !ok:
		return fmt.Errorf("the remote agent is not installed in the cluster of context %q: its owner installs it first, kubectl --context %s "+
			"apply -k deploy/remote", p.remote.Context, p.remote.Context)
	}
	if p.PodNetwork != string(v1alpha1.Fabric) {
		return nil
	}
	for _, side := range []struct {
		cluster   *cli.Cluster
		component string
		remote    string
	}{{p.home, "network", ""}, {p.remote, "network-remote", " --remote"}} {
		ok, err := side.cluster.Serves(networkv1alpha1.GroupVersion.String(), "networklinks")
		switch {
		case err != nil:
			return err
		case !ok:
			return fmt.Errorf("the network program is not installed in the cluster of context %q: kubectl lodestone install --context %s%s "+
				"--network brings it, or add deploy/components/%s to what is applied there", side.cluster.Context, side.cluster.Context, side.remote,
				side.component)
		}
	}
	return nil
}

// checkRights checks all rights before anything is written, so that a missing right leaves nothing
// half done.
func (p *peering) checkRights(ctx context.Context, plan Plan) error {
	home := []cli.Right{
		{Verb: "create", Group: v1alpha1.GroupVersion.Group, Resource: "remoteclusters"},
		{Verb: "update", Group: v1alpha1.GroupVersion.Group, Resource: "remoteclusters"},
		{Verb: "create", Resource: "secrets", Namespace: plan.Secret.Namespace},
		{Verb: "update", Resource: "secrets", Namespace: plan.Secret.Namespace},
	}
	remote := []cli.Right{
		{Verb: "create", Group: remotev1alpha1.GroupVersion.Group, Resource: "homeclusters"},
		{Verb: "update", Group: remotev1alpha1.GroupVersion.Group, Resource: "homeclusters"},
	}
	if plan.Auth == Certificate {
		remote = append(remote,
			cli.Right{Verb: "create", Group: "certificates.k8s.io", Resource: "certificatesigningrequests"},
			cli.Right{Verb: "get", Group: "certificates.k8s.io", Resource: "certificatesigningrequests"})
	} else {
		remote = append(remote, cli.Right{Verb: "create", Resource: "serviceaccounts/token", Namespace: plan.Tenant(), Name: keys.HomeAccount})
	}
	var sentences []string
	for _, side := range []struct {
		cluster *cli.Cluster
		rights  []cli.Right
	}{{p.home, home}, {p.remote, remote}} {
		lacking, err := side.cluster.Lacking(ctx, side.rights...)
		if err != nil {
			return err
		}
		var names []string
		for _, right := range lacking {
			names = append(names, right.String())
		}
		if len(names) > 0 {
			sentences = append(sentences, fmt.Sprintf("in the cluster of context %q: %s", side.cluster.Context, strings.Join(names, ", ")))
		}
	}
	if len(sentences) > 0 {
		return fmt.Errorf("you lack rights that peering needs, so nothing was changed; ask for them, or let an administrator run "+
			"this command: %s", strings.Join(sentences, "; "))
	}
	return nil
}

// execute does what is planned. A certificate is requested before the HomeCluster is changed: once
// the HomeCluster names its user, the remote agent revokes the rights of a token. A token is
// requested afterwards, since the remote agent makes the service account.
func (p *peering) execute(ctx context.Context, plan Plan, have homeLogin, server cli.Server) error {
	var err error
	if plan.Auth == Certificate {
		if have, err = p.ensureLogin(ctx, plan, have); err != nil {
			return err
		}
	}
	if err := p.ensureHomeCluster(ctx, plan); err != nil {
		return err
	}
	if err := p.awaitHomeCluster(ctx, plan); err != nil {
		return err
	}
	if plan.Auth != Certificate {
		if have, err = p.ensureLogin(ctx, plan, have); err != nil {
			return err
		}
	}
	if err := p.ensureSecret(ctx, plan, have, server); err != nil {
		return err
	}
	if err := p.ensureRemoteCluster(ctx, plan); err != nil {
		return err
	}
	if err := p.awaitRemoteCluster(ctx, plan); err != nil {
		return err
	}
	if err := p.awaitNode(ctx, plan); err != nil {
		return err
	}
	if err := p.awaitNetwork(ctx, plan); err != nil {
		return err
	}
	p.tellDaemonSets(ctx)
	return nil
}

// ensureHomeCluster creates the HomeCluster in the remote cluster, or updates it to the flags.
func (p *peering) ensureHomeCluster(ctx context.Context, plan Plan) error {
	want, homes := plan.homeCluster(p.Options, p.homeUID), p.remote.Remote.HomeClusters()
	var err error
	switch {
	case plan.Home == nil:
		if _, err = homes.Create(ctx, want, metav1.CreateOptions{}); err == nil {
			p.Say("made HomeCluster %q in the cluster of context %q", want.Name, p.remote.Context)
		}
	case !equality.Semantic.DeepEqual(plan.Home.Spec, want.Spec):
		if _, err = homes.Update(ctx, want, metav1.UpdateOptions{}); err == nil {
			p.Say("changed HomeCluster %q in the cluster of context %q", want.Name, p.remote.Context)
		}
	}
	return p.remote.Explain("write HomeCluster "+want.Name, err)
}

// homeCluster returns the wanted HomeCluster of the remote cluster: the present one, changed as the
// flags say.
func (p Plan) homeCluster(o Options, homeUID string) *remotev1alpha1.HomeCluster {
	want := &remotev1alpha1.HomeCluster{ObjectMeta: metav1.ObjectMeta{Name: p.HomeID, Labels: managedLabels()}}
	if p.Home != nil {
		want = p.Home.DeepCopy()
	}
	want.TypeMeta = metav1.TypeMeta{APIVersion: remotev1alpha1.GroupVersion.String(), Kind: "HomeCluster"}
	want.Spec.ClusterUID, want.Spec.User = homeUID, ""
	if p.Auth == Certificate {
		want.Spec.User = p.User()
	}
	if len(o.offer) > 0 {
		want.Spec.Offer = o.offer
	}
	if o.PodSecurity != "" {
		want.Spec.Namespaces.PodSecurity = o.PodSecurity
	}
	if len(o.Namespaces) > 0 {
		want.Spec.Namespaces.Names = o.Namespaces
	}
	want.Spec.Network = p.Network
	return want
}

// awaitHomeCluster waits until the remote agent has created home's identity.
func (p *peering) awaitHomeCluster(ctx context.Context, plan Plan) error {
	what := fmt.Sprintf("HomeCluster %q in the cluster of context %q to be Ready", plan.HomeID, p.remote.Context)
	return p.Await(ctx, what, func(ctx context.Context) (string, bool, error) {
		home, err := p.remote.Remote.HomeClusters().Get(ctx, plan.HomeID, metav1.GetOptions{})
		if err != nil {
			return pollError(p.remote.Explain("get HomeCluster "+plan.HomeID, err))
		}
		ready := meta.FindStatusCondition(home.Status.Conditions, remotev1alpha1.Ready)
		if ready == nil {
			return "the remote agent has not looked at it yet; if this lasts, see whether it runs there (kubectl get pods -n lodestone-remote)",
				false, nil
		}
		// A condition of an older generation does not count.
		current := ready.ObservedGeneration == 0 || ready.ObservedGeneration >= home.Generation
		return ready.Message, current && ready.Status == metav1.ConditionTrue, nil
	})
}

// ensureRemoteCluster creates the RemoteCluster at home, or updates it to the flags.
func (p *peering) ensureRemoteCluster(ctx context.Context, plan Plan) error {
	want := plan.remoteCluster(p.Options, p.remoteUID)
	var err error
	switch {
	case plan.Remote == nil:
		if _, err = p.home.Remotes.Create(ctx, want, metav1.CreateOptions{}); err == nil {
			p.Say("made %s", describe(want.Name))
		}
	case !equality.Semantic.DeepEqual(plan.Remote.Spec, want.Spec) ||
		plan.Remote.Annotations[keys.ClusterUID] != want.Annotations[keys.ClusterUID]:
		if _, err = p.home.Remotes.Update(ctx, want, metav1.UpdateOptions{}); err == nil {
			p.Say("changed %s", describe(want.Name))
		}
	}
	return p.home.Explain("write "+describe(want.Name), err)
}

// remoteCluster returns the RemoteCluster that is wanted at home.
func (p Plan) remoteCluster(o Options, remoteUID string) *v1alpha1.RemoteCluster {
	want := &v1alpha1.RemoteCluster{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Labels: managedLabels()}}
	if p.Remote != nil {
		want = p.Remote.DeepCopy()
	}
	want.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "RemoteCluster"}
	if want.Annotations == nil {
		want.Annotations = map[string]string{}
	}
	want.Annotations[keys.ClusterUID] = remoteUID
	want.Spec.KubeconfigSecretRef = p.Secret
	want.Spec.Namespaces.Strategy = p.Strategy
	if o.StorageClass != "" {
		want.Spec.StorageClassName = o.StorageClass
	}
	if o.PodNetwork != "" {
		want.Spec.PodNetwork = v1alpha1.PodNetwork(o.PodNetwork)
	}
	if o.PodCarrier != "" {
		want.Spec.PodCarrier = networkv1alpha1.Carrier(o.PodCarrier)
	}
	if len(o.PodCIDRs) > 0 {
		want.Spec.PodCIDRs = o.PodCIDRs
	}
	want.Spec.PodTranslations, want.Spec.HomePodTranslations = p.Translations.Object(), p.HomeTranslations.Object()
	if o.HomeServer != "" {
		want.Spec.HomeServer = o.HomeServer
	}
	if o.VirtualNode != "" {
		want.Spec.VirtualNode = v1alpha1.VirtualNodeMode(o.VirtualNode)
	}
	return want
}

// managedLabels is the label of the objects that this program makes.
func managedLabels() map[string]string {
	return map[string]string{"app.kubernetes.io/managed-by": "kubectl-lodestone"}
}

// awaitRemoteCluster waits until home's provisioner uses the remote cluster.
func (p *peering) awaitRemoteCluster(ctx context.Context, plan Plan) error {
	return p.Await(ctx, describe(plan.Name)+" to be Ready", func(ctx context.Context) (string, bool, error) {
		remote, err := p.home.Remotes.Get(ctx, plan.Name, metav1.GetOptions{})
		if err != nil {
			return pollError(p.home.Explain("get "+describe(plan.Name), err))
		}
		ready := meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.Ready)
		if ready == nil {
			return fmt.Sprintf("the provisioner has not looked at it yet; if this lasts, see whether it runs (kubectl get pods -n %s)", p.Namespace),
				false, nil
		}
		current := ready.ObservedGeneration == 0 || ready.ObservedGeneration >= remote.Generation
		return ready.Message, current && ready.Status == metav1.ConditionTrue, nil
	})
}

// awaitNode waits for the virtual node where Lodestone's own program makes it.
func (p *peering) awaitNode(ctx context.Context, plan Plan) error {
	if plan.remoteCluster(p.Options, p.remoteUID).Spec.VirtualNode == v1alpha1.VirtualNodeDisabled {
		return nil
	}
	_, err := p.home.Client.AppsV1().Deployments(p.Namespace).Get(ctx, virtualNode, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		p.Say("no virtual node is awaited: Lodestone's program for them is not installed at home, and other nodes may stand for %q", plan.Name)
		return nil
	}
	return p.Await(ctx, fmt.Sprintf("virtual node %q to be Ready", plan.Name), func(ctx context.Context) (string, bool, error) {
		node, err := p.home.Client.CoreV1().Nodes().Get(ctx, plan.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return fmt.Sprintf("it does not exist yet; if this lasts, see the log of %s in namespace %s", virtualNode, p.Namespace), false, nil
		case apierrors.IsForbidden(err):
			p.Say("whether virtual node %q is Ready cannot be seen: you may not get nodes", plan.Name)
			return "", true, nil
		case err != nil:
			return pollError(p.home.Explain("get node "+plan.Name, err))
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				return condition.Message, condition.Status == corev1.ConditionTrue, nil
			}
		}
		return "", false, nil
	})
}

// awaitNetwork waits until pods of the two clusters reach each other.
func (p *peering) awaitNetwork(ctx context.Context, plan Plan) error {
	if plan.network(p.Options) != v1alpha1.Fabric {
		return nil
	}
	what := fmt.Sprintf("pods at home and in cluster %q to reach each other", plan.Name)
	return p.Await(ctx, what, func(ctx context.Context) (string, bool, error) {
		remote, err := p.home.Remotes.Get(ctx, plan.Name, metav1.GetOptions{})
		if err != nil {
			return pollError(p.home.Explain("get "+describe(plan.Name), err))
		}
		ready := meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.NetworkReady)
		if ready == nil {
			return fmt.Sprintf("nothing is known of it yet; if this lasts, see the log of %s in namespace %s", virtualNode, p.Namespace),
				false, nil
		}
		current := ready.ObservedGeneration >= remote.Generation
		return ready.Message, current && ready.Status == metav1.ConditionTrue, nil
	})
}

// tellDaemonSets says which DaemonSets want pods on virtual nodes. It is advice: who may not read
// them gets none.
func (p *peering) tellDaemonSets(ctx context.Context) {
	nodes, err := p.home.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: keys.VirtualNodeRole})
	if err != nil {
		return
	}
	sets, err := p.home.Client.AppsV1().DaemonSets("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	if names := daemonsets.Wanting(sets.Items, nodes.Items); len(names) > 0 {
		p.Say("%s", daemonsets.Advice(names))
	}
}

// pollError turns an error during a wait into the results that Await expects: it goes on while an
// API server is away for a moment, and returns an answer that will not change.
func pollError(err error) (string, bool, error) {
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return "", false, err
	}
	return err.Error(), false, nil
}

func (p *peering) sayOnce(line string) {
	if p.printed == nil {
		p.printed = map[string]bool{}
	}
	if !p.printed[line] {
		p.printed[line] = true
		p.Say("%s", line)
	}
}

// redacted replaces secret values.
const redacted = "REDACTED"

// print prints the objects that a run would make, and changes nothing. No
// credentials are issued for it.
func (p *peering) print(plan Plan, server cli.Server, have credentials.Found) error {
	login := credentials.Login{Token: redacted}
	if plan.Auth == Certificate {
		login = credentials.Login{Certificate: []byte(redacted), PEM: []byte(redacted)}
	}
	if p.ShowSecrets && have.Kind() == plan.Auth && (have.Token != "" || len(have.Certificate) > 0) {
		login = have.Login
	}
	kubeconfig, err := credentials.Kubeconfig(plan.Name, "lodestone-home", server, login)
	if err != nil {
		return err
	}
	// The text form can be read and filled in, base64 could not.
	wanted := plan.secret(nil, p.remoteUID, func(map[string][]byte) {})
	wanted.Data, wanted.StringData = nil, map[string]string{plan.key(): string(kubeconfig)}
	hint := fmt.Sprintf("kubectl --context %s create token %s -n %s", p.remote.Context, keys.HomeAccount, plan.Tenant())
	if plan.Auth == Certificate {
		hint = "a client certificate of user " + plan.User() + ", group " + keys.HomesGroup
	}
	items := []item{
		{cluster: "remote", object: plan.homeCluster(p.Options, p.homeUID), comment: "what the owner of that cluster allows home"},
		{cluster: "home", object: wanted, comment: "how home logs in there; to fill in: " + hint},
		{cluster: "home", object: plan.remoteCluster(p.Options, p.remoteUID), comment: "what home calls that cluster"},
	}
	return p.write(items)
}

type item struct {
	cluster, comment string
	object           runtime.Object
}

func (p *peering) write(items []item) error {
	var list []map[string]any
	for _, item := range items {
		if p.For != "both" && p.For != item.cluster {
			continue
		}
		object, err := manifest(item.object)
		if err != nil {
			return err
		}
		list = append(list, object)
		if p.Output == "json" {
			continue
		}
		content, err := yaml.Marshal(object)
		if err != nil {
			return fmt.Errorf("write the objects: %w", err)
		}
		side := p.home.Context
		if item.cluster == "remote" {
			side = p.remote.Context
		}
		if _, err := fmt.Fprintf(p.out.Out, "---\n# For the %s cluster (context %s): %s\n%s", item.cluster, side, item.comment,
			content); err != nil {
			return err
		}
	}
	if p.Output != "json" {
		return nil
	}
	content, err := json.MarshalIndent(map[string]any{"apiVersion": "v1", "kind": "List", "items": list}, "", "  ")
	if err != nil {
		return fmt.Errorf("write the objects: %w", err)
	}
	_, err = fmt.Fprintln(p.out.Out, string(content))
	return err
}

// manifest returns an object as a user would write it.
func manifest(object runtime.Object) (map[string]any, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("write the objects: %w", err)
	}
	full := unstructured.Unstructured{Object: content}
	meta := map[string]any{"name": full.GetName()}
	if full.GetNamespace() != "" {
		meta["namespace"] = full.GetNamespace()
	}
	if labels := full.GetLabels(); len(labels) > 0 {
		meta["labels"] = labels
	}
	if annotations := full.GetAnnotations(); len(annotations) > 0 {
		meta["annotations"] = annotations
	}
	content["metadata"] = meta
	delete(content, "status")
	prune(content)
	return content, nil
}

// prune removes empty objects, which no user would write.
func prune(object map[string]any) {
	for name, value := range object {
		inner, ok := value.(map[string]any)
		if !ok {
			continue
		}
		prune(inner)
		if len(inner) == 0 {
			delete(object, name)
		}
	}
}
