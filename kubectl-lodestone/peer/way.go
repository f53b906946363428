package peer

import (
	"context"
	"os"
	"strings"
	"unicode"

	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
)

// connector connects to the remote cluster, for which it may need home.
type connector func(ctx context.Context, home *cli.Cluster) (*cli.Cluster, error)

// way returns what connects to the remote cluster: by a context, by a ClusterProfile of home, or by what the cluster announces of itself.
func (o *Options) way(flags *genericclioptions.ConfigFlags, usage string) (connector, error) {
	byContext := o.RemoteContext != "" || o.RemoteKubeconfig != ""
	byProfile := o.ClusterProfile != "" || o.ClusterProfileProviders != ""
	announced := o.Discovered != "" || o.Where.Given() || o.RemoteTokenFile != "" || o.RemoteCAHash != ""
	switch {
	case announced && (byContext || byProfile):
		return nil, cli.Misuse("--discovered, with --domain or --mdns, --remote-token-file and --remote-ca-hash, is in place of " +
			"--remote-context and --cluster-profile: give one of them")
	case announced:
		if o.Discovered == "" || o.RemoteTokenFile == "" || o.RemoteCAHash == "" {
			return nil, cli.Misuse("--discovered, --remote-token-file and --remote-ca-hash go together: the first says which cluster of --domain " +
				"or --mdns, the others are handed out by its owner")
		}
		if !cli.IsAuthorityHash(o.RemoteCAHash) {
			return nil, cli.Misuse("--remote-ca-hash %q is not a hash: give sha256: and 64 characters, as \"kubectl lodestone announce\" writes it "+
				"for the owner", o.RemoteCAHash)
		}
		return func(ctx context.Context, _ *cli.Cluster) (*cli.Cluster, error) { return o.connectAnnounced(ctx) }, o.Where.Check()
	case byProfile && byContext:
		return nil, cli.Misuse("give --cluster-profile with --cluster-profile-providers, or --remote-context, and not both")
	case byProfile && (o.ClusterProfile == "" || o.ClusterProfileProviders == ""):
		return nil, cli.Misuse("--cluster-profile and --cluster-profile-providers go together: the first says which cluster, the second how to " +
			"log in")
	case byProfile:
		return func(ctx context.Context, home *cli.Cluster) (*cli.Cluster, error) {
			return cli.ConnectProfile(ctx, home, o.ClusterProfile, o.ClusterProfileProviders)
		}, nil
	case !byContext:
		return nil, cli.Misuse("say which cluster to peer with: give --remote-context, or --remote-kubeconfig with a current context; usage: %s",
			usage)
	}
	return func(context.Context, *cli.Cluster) (*cli.Cluster, error) {
		return cli.ConnectRemote(flags, o.RemoteKubeconfig, o.RemoteContext)
	}, nil
}

// connectAnnounced connects to the cluster that announces itself by a name. Where several do, the first that has the authority which the
// owner named is the one: whoever announces the name too can neither get the token nor be in the way.
func (o *Options) connectAnnounced(ctx context.Context) (*cli.Cluster, error) {
	all, err := o.Where.FindOne(ctx, o.Discovered)
	if err != nil {
		return nil, err
	}
	var failed []string
	for _, one := range all {
		cluster, err := cli.ConnectAnnounced(ctx, o.Discovered, one.Server, o.RemoteCAHash, o.token, o.ca)
		if err == nil {
			return cluster, nil
		}
		if len(all) == 1 {
			return nil, err
		}
		failed = append(failed, err.Error())
	}
	return nil, cli.Refuse("%d clusters announce themselves as %q in %s, and none is the one that its owner named: %s", len(all), o.Discovered,
		&o.Where, strings.Join(failed, "; "))
}

// maxToken is longer than tokens are.
const maxToken = 64 << 10

func readToken(file string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", cli.Misuse("--remote-token-file cannot be read: %w", err)
	}
	token := strings.TrimSpace(string(content))
	unfit := func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsGraphic(r) || r == ' ' }
	if token == "" || len(token) > maxToken || strings.ContainsFunc(token, unfit) {
		return "", cli.Misuse("--remote-token-file %s has no token: it must have one line, as kubectl create token writes it", file)
	}
	return token, nil
}
