package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Kind is a kind of object that arguments name, as messages and kubectl call it.
type Kind string

// The kinds that commands take.
const (
	Claim         Kind = "pvc"
	Volume        Kind = "pv"
	Pod           Kind = "pod"
	Deployment    Kind = "deployment"
	StatefulSet   Kind = "statefulset"
	ReplicaSet    Kind = "replicaset"
	DaemonSet     Kind = "daemonset"
	Job           Kind = "job"
	Namespace     Kind = "namespace"
	Node          Kind = "node"
	Move          Kind = "volumemove"
	Replica       Kind = "volumereplica"
	RemoteCluster Kind = "remotecluster"
	HomeCluster   Kind = "homecluster"
)

// kindNames are the names that kubectl has for each kind, and those that messages use.
var kindNames = map[Kind][]string{
	Claim:         {"pvc", "pvcs", "persistentvolumeclaim", "persistentvolumeclaims", "claim", "claims"},
	Volume:        {"pv", "pvs", "persistentvolume", "persistentvolumes"},
	Pod:           {"pod", "pods", "po"},
	Deployment:    {"deployment", "deployments", "deploy", "deployment.apps", "deployments.apps"},
	StatefulSet:   {"statefulset", "statefulsets", "sts", "statefulset.apps", "statefulsets.apps"},
	ReplicaSet:    {"replicaset", "replicasets", "rs", "replicaset.apps", "replicasets.apps"},
	DaemonSet:     {"daemonset", "daemonsets", "ds", "daemonset.apps", "daemonsets.apps"},
	Job:           {"job", "jobs", "job.batch", "jobs.batch"},
	Namespace:     {"namespace", "namespaces", "ns"},
	Node:          {"node", "nodes", "no"},
	Move:          {"volumemove", "volumemoves", "vmove", "volumemove.lodestone.dev", "volumemoves.lodestone.dev"},
	Replica:       {"volumereplica", "volumereplicas", "vreplica", "volumereplica.lodestone.dev", "volumereplicas.lodestone.dev"},
	RemoteCluster: {"remotecluster", "remoteclusters", "remotecluster.lodestone.dev", "remoteclusters.lodestone.dev"},
	HomeCluster:   {"homecluster", "homeclusters", "homecluster.remote.lodestone.dev", "homeclusters.remote.lodestone.dev"},
}

// Noun is what messages call an object of the kind.
func (k Kind) Noun() string {
	switch k {
	case Claim:
		return "claim"
	case Volume:
		return "volume"
	case Move:
		return "VolumeMove"
	case Replica:
		return "VolumeReplica"
	case RemoteCluster:
		return "RemoteCluster"
	case HomeCluster:
		return "HomeCluster"
	case Pod, Deployment, StatefulSet, ReplicaSet, DaemonSet, Job, Namespace, Node:
	}
	return string(k)
}

// Reference is an object that an argument names. Kind is empty if the argument says none.
type Reference struct {
	Kind Kind
	Name string
}

// References reads arguments as kubectl does: NAME, KIND/NAME, or a KIND before all NAMEs. It is a
// mistake to name a kind that is not among those that the command takes. It is pure.
func References(args []string, takes ...Kind) ([]Reference, error) {
	var before Kind
	if kind := KindOf(args[:min(1, len(args))]...); kind != "" && len(args) > 1 && !strings.Contains(args[1], "/") {
		before, args = kind, args[1:]
	}
	var all []Reference
	for _, arg := range args {
		reference := Reference{Kind: before, Name: arg}
		if kind, name, ok := strings.Cut(arg, "/"); ok {
			reference = Reference{Kind: KindOf(kind), Name: name}
			if before != "" || reference.Kind == "" {
				return nil, Misuse("%q is not understood: write %s", arg, forms(takes, "NAME"))
			}
		}
		switch {
		case reference.Kind != "" && !slices.Contains(takes, reference.Kind):
			return nil, Misuse("a %s cannot be named here: write %s", reference.Kind.Noun(), forms(takes, "NAME"))
		case reference.Name == "" && reference.Kind != "":
			return nil, Misuse("%q has no name: write %s", arg, forms([]Kind{reference.Kind}, "NAME"))
		case len(validation.IsDNS1123Subdomain(reference.Name)) > 0:
			return nil, Misuse("%q cannot be a name: names have lower-case letters, digits, '-' and '.'", reference.Name)
		}
		all = append(all, reference)
	}
	return all, nil
}

// RemoteClusters returns the names of the RemoteClusters that arguments name; none means all. It is pure.
func RemoteClusters(args []string) (names []string, err error) {
	if len(args) == 1 && KindOf(args[0]) == RemoteCluster {
		return nil, nil
	}
	references, err := References(args, RemoteCluster)
	for _, reference := range references {
		names = append(names, reference.Name)
	}
	return names, err
}

// OneReference reads the arguments of a command that takes one object: NAME if there is but one kind
// of which it can be, KIND/NAME, or KIND NAME. It is pure but for the usage line of the command.
func OneReference(cmd *cobra.Command, args []string, takes ...Kind) (Reference, error) {
	if err := someReference(cmd, args, takes); err != nil {
		return Reference{}, err
	}
	references, err := References(args, takes...)
	switch {
	case err != nil:
		return Reference{}, err
	case len(references) > 1:
		return Reference{}, Misuse("%q is one argument too many: the command takes one object at a time; %s", args[len(args)-1], usage(cmd))
	case references[0].Kind != "":
		return references[0], nil
	case len(takes) > 1:
		return Reference{}, Misuse("say what %q is: write %s", args[0], forms(takes, args[0]))
	}
	return Reference{Kind: takes[0], Name: references[0].Name}, nil
}

// SomeReferences reads the arguments of a command that takes one object or several.
func SomeReferences(cmd *cobra.Command, args []string, takes ...Kind) ([]Reference, error) {
	if err := someReference(cmd, args, takes); err != nil {
		return nil, err
	}
	return References(args, takes...)
}

// someReference returns an error if arguments name nothing: if there is none, or a kind alone.
func someReference(cmd *cobra.Command, args []string, takes []Kind) error {
	switch kind := KindOf(args...); {
	case len(args) == 0:
		return Misuse("say which %s: it is missing; %s", nouns(takes), usage(cmd))
	case kind != "" && slices.Contains(takes, kind):
		return Misuse("say which %s: the name is missing after %q; %s", kind.Noun(), args[0], usage(cmd))
	}
	return nil
}

// TakesOne checks the arguments of a command that takes one object of one of these kinds.
func TakesOne(takes ...Kind) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		_, err := OneReference(cmd, args, takes...)
		return err
	}
}

// NoArguments checks that there are none, and says what is one too many.
func NoArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return Misuse("%q is one argument too many: %s takes none; %s", args[0], cmd.CommandPath(), usage(cmd))
}

func usage(cmd *cobra.Command) string { return "usage: " + cmd.UseLine() }

// KindOf returns the kind of which the only word is a name; empty for other words.
func KindOf(words ...string) Kind {
	for kind, names := range kindNames {
		if len(words) == 1 && slices.Contains(names, strings.ToLower(words[0])) {
			return kind
		}
	}
	return ""
}

// forms lists how an object of one of the kinds is written: pod/NAME, pvc/NAME or pv/NAME.
func forms(kinds []Kind, name string) string {
	var all []string
	for _, kind := range kinds {
		all = append(all, string(kind)+"/"+name)
	}
	return Or(all)
}

func nouns(kinds []Kind) string {
	var all []string
	for _, kind := range kinds {
		all = append(all, kind.Noun())
	}
	return Or(all)
}

// Names returns the names of the objects of a kind, sorted; of kinds with a namespace those in it.
func (c *Cluster) Names(ctx context.Context, namespace string, kind Kind) ([]string, error) {
	list, err := c.list(ctx, namespace, kind)
	if err != nil {
		return nil, err
	}
	var names []string
	err = meta.EachListItem(list, func(object runtime.Object) error {
		accessor, err := meta.Accessor(object)
		if err == nil {
			names = append(names, accessor.GetName())
		}
		return err
	})
	slices.Sort(names)
	return names, err
}

func (c *Cluster) list(ctx context.Context, namespace string, kind Kind) (runtime.Object, error) {
	core, apps, all := c.Client.CoreV1(), c.Client.AppsV1(), metav1.ListOptions{}
	switch kind {
	case Claim:
		return core.PersistentVolumeClaims(namespace).List(ctx, all)
	case Volume:
		return core.PersistentVolumes().List(ctx, all)
	case Pod:
		return core.Pods(namespace).List(ctx, all)
	case Deployment:
		return apps.Deployments(namespace).List(ctx, all)
	case StatefulSet:
		return apps.StatefulSets(namespace).List(ctx, all)
	case ReplicaSet:
		return apps.ReplicaSets(namespace).List(ctx, all)
	case DaemonSet:
		return apps.DaemonSets(namespace).List(ctx, all)
	case Job:
		return c.Client.BatchV1().Jobs(namespace).List(ctx, all)
	case Namespace:
		return core.Namespaces().List(ctx, all)
	case Node:
		return core.Nodes().List(ctx, all)
	case Move:
		return c.Moves.In(namespace).List(ctx, all)
	case Replica:
		return c.Moves.Replicas(namespace).List(ctx, all)
	case RemoteCluster:
		return c.Remotes.List(ctx, all)
	case HomeCluster:
		return c.Remote.HomeClusters().List(ctx, all)
	}
	return nil, fmt.Errorf("objects of kind %s cannot be listed", kind)
}

// Missing returns the sentence that there is no object of this kind and name, with the names of those
// that there are, or if these cannot be listed how they are shown.
func (c *Cluster) Missing(ctx context.Context, kind Kind, namespace, name string) error {
	in := ""
	if namespace != "" {
		in = fmt.Sprintf(" in namespace %q", namespace)
	}
	what := kind.Noun()
	names, err := c.Names(ctx, namespace, kind)
	switch {
	case len(names) == 0 && kind == HomeCluster:
		return fmt.Errorf("there is no %s %q, nor any other, in the cluster of context %q: give --context of the remote cluster", what, name,
			c.Context)
	case err != nil:
		return fmt.Errorf("there is no %s %q%s: %s lists them", what, name, in, listing(kind, namespace))
	case len(names) == 0 && kind == RemoteCluster:
		return fmt.Errorf("there is no %s %q, nor any other: kubectl lodestone peer makes one", what, name)
	case len(names) == 0 && namespace != "":
		found, err := c.namespace(ctx, namespace)
		switch {
		case err != nil:
			return err
		case found != nil && found.DeletionTimestamp != nil:
			return fmt.Errorf("there is no %s %q%s, which is being deleted: kubectl lodestone why namespace/%s says what it waits for",
				what, name, in, namespace)
		}
		return fmt.Errorf("there is no %s %q%s, nor any other: give -n or --context if it is elsewhere", what, name, in)
	case len(names) == 0:
		return fmt.Errorf("there is no %s %q, nor any other", what, name)
	}
	return fmt.Errorf("there is no %s %q%s; there %s", what, name, in, ThereAre(names, name, listing(kind, namespace)))
}

// RequireNamespace returns an error if there is no such namespace. Of one that the user may not read nothing is known.
func (c *Cluster) RequireNamespace(ctx context.Context, name string) error {
	_, err := c.namespace(ctx, name)
	return err
}

// namespace returns a namespace, nil if the user may not read it, or an error if there is none.
func (c *Cluster) namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	namespace, err := c.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, c.Missing(ctx, Namespace, "", name)
	case apierrors.IsForbidden(err):
		return nil, nil //nolint:nilnil // what cannot be read is neither there nor missing
	case err != nil:
		return nil, c.Explain("get namespace "+name, err)
	}
	return namespace, nil
}

// listing is the command that lists the objects of a kind.
func listing(kind Kind, namespace string) string {
	switch {
	case kind == RemoteCluster:
		return "kubectl lodestone status"
	case kind == Move:
		return "kubectl lodestone move status -n " + namespace
	case kind == Replica:
		return "kubectl lodestone replicate status -n " + namespace
	case namespace != "":
		return fmt.Sprintf("kubectl get %s -n %s", kind, namespace)
	}
	return "kubectl get " + string(kind)
}

// mostNames is how many names a sentence has.
const mostNames = 8

// ThereAre goes on with the sentence that there is no such name: it lists those that there are, of many those that are most like
// the one that was typed, and then the command that lists all.
func ThereAre(names []string, typed, listing string) string {
	if len(names) == 1 {
		return "is: " + names[0]
	}
	text := "are: " + strings.Join(nearest(names, typed, mostNames), ", ")
	if more := len(names) - mostNames; more > 0 {
		text += fmt.Sprintf(" and %d more (%s)", more, listing)
	}
	return text
}

// RequireCluster returns an error if a name given by a user is neither home nor that of a
// RemoteCluster. A user who may not read RemoteClusters is not stopped: the provisioner knows.
func (c *Cluster) RequireCluster(ctx context.Context, name string) error {
	if name == keys.Home {
		return nil
	}
	_, err := c.Remotes.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return nil
	case apierrors.IsNotFound(err):
		if served, unknown := c.Serves(v1alpha1.GroupVersion.String(), "remoteclusters"); unknown == nil && !served {
			return c.NotInstalled()
		}
		return c.Missing(ctx, RemoteCluster, "", name)
	}
	return c.Explain("get RemoteCluster "+name, err)
}

// NotInstalled is the error for a cluster without Lodestone.
func (c *Cluster) NotInstalled() error {
	return fmt.Errorf("Lodestone is not installed in the cluster of context %q: kubectl lodestone install --context %s installs it there; or "+
		"choose another --context", c.Context, c.Context)
}

// completionTimeout limits what a shell waits for names.
const completionTimeout = 5 * time.Second

// Lister returns the values that a flag or an argument can have.
type Lister func(ctx context.Context, home *Cluster, namespace string) ([]string, error)

// Complete completes a flag, or the first argument, with what list returns. Where the cluster does not answer, nothing is
// completed: an error could not be shown.
func Complete(flags *genericclioptions.ConfigFlags, list Lister) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		home, namespace, err := Connect(flags)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		names, err := list(ctx, home, namespace)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// NamesOf lists the objects of kinds.
func NamesOf(kinds ...Kind) Lister {
	return func(ctx context.Context, home *Cluster, namespace string) ([]string, error) {
		var all []string
		for _, kind := range kinds {
			names, err := home.Names(ctx, namespace, kind)
			if err != nil {
				return all, err
			}
			all = append(all, names...)
		}
		return all, nil
	}
}

// Clusters lists home and the RemoteClusters.
func Clusters(ctx context.Context, home *Cluster, namespace string) ([]string, error) {
	names, err := NamesOf(RemoteCluster)(ctx, home, namespace)
	return append([]string{keys.Home}, names...), err
}

// CompleteReferences completes arguments as References reads them: names of the kinds that need no kind before them, kinds, and
// after a kind its names. A command that takes one object is completed for one.
func CompleteReferences(flags *genericclioptions.ConfigFlags, one bool, bare []Kind, takes ...Kind) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		var kind Kind
		if len(args) > 0 {
			kind = KindOf(args[0])
		}
		if one && (len(args) > 1 || len(args) == 1 && kind == "") {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		word, _, slash := strings.Cut(toComplete, "/")
		switch {
		case slash && (kind == "" || !slices.Contains(takes, kind)):
			names, directive := Complete(flags, NamesOf(onlyOf(takes, KindOf(word))...))(cmd, args, toComplete)
			for i := range names {
				names[i] = word + "/" + names[i]
			}
			return without(names, args), directive
		case len(args) > 0 && slices.Contains(takes, kind):
			names, directive := Complete(flags, NamesOf(kind))(cmd, args, toComplete)
			return without(names, args[1:]), directive
		}
		names, directive := Complete(flags, NamesOf(bare...))(cmd, args, toComplete)
		if len(args) == 0 {
			for _, kind := range takes {
				names = append(names, string(kind))
			}
		}
		return without(names, args), directive
	}
}

func onlyOf(kinds []Kind, kind Kind) []Kind {
	if slices.Contains(kinds, kind) {
		return []Kind{kind}
	}
	return nil
}

func without(names, given []string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(given, name) })
}

// CompleteFlag completes a flag of a command with what list returns.
func CompleteFlag(cmd *cobra.Command, flags *genericclioptions.ConfigFlags, name string, list Lister) {
	_ = cmd.RegisterFlagCompletionFunc(name, Complete(flags, list))
}

// Or joins words to a list in which the last two are joined by or.
func Or(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// nearest returns the words that are most like one that was mistyped, at most n of them, sorted.
func nearest(words []string, typed string, n int) []string {
	if len(words) > n {
		words = slices.SortedStableFunc(slices.Values(slices.Sorted(slices.Values(words))), func(a, b string) int {
			return cmp.Or(cmp.Compare(common(b, typed), common(a, typed)), cmp.Compare(distance(a, typed), distance(b, typed)))
		})[:n]
	}
	return slices.Sorted(slices.Values(words))
}

// Meant returns the words that somebody may have meant who typed another: those that begin with it, and those that differ in two
// letters at most.
func Meant(words []string, typed string) []string {
	const least, most = 3, 2
	var all []string
	for _, word := range words {
		if len(typed) >= least && (strings.HasPrefix(word, typed) || distance(word, typed) <= most) {
			all = append(all, word)
		}
	}
	slices.Sort(all)
	return all
}

// common is how many letters two words have in common at their beginning.
func common(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// distance is how many letters must be added, removed or replaced to make one word of another.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := last
			if a[i] != b[j] {
				replaced++
			}
			last = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
