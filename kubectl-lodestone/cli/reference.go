package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"
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
	RemoteCluster Kind = "remotecluster"
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
	Move:          {"volumemove", "volumemoves", "volumemove.lodestone.dev", "volumemoves.lodestone.dev"},
	RemoteCluster: {"remotecluster", "remoteclusters", "remotecluster.lodestone.dev", "remoteclusters.lodestone.dev"},
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
	case RemoteCluster:
		return "RemoteCluster"
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
		return Misuse("say which %s: the name is missing behind %q; %s", kind.Noun(), args[0], usage(cmd))
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
