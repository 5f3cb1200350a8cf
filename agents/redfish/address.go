package redfish

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/hamgr/hamgr/agents"
)

// address is where a BMC is: everything that is sent goes there and nowhere else.
type address struct {
	scheme string
	host   string // host or host:port, as in a URL
}

func (a address) endpoint() string { return a.scheme + "://" + a.host }

// parseAddress reads a URL or host[:port]. The messages do not repeat the text,
// because somebody may have written credentials into it.
func parseAddress(s string, insecure bool) (address, []error) {
	bad := func(msg, cure string) (address, []error) {
		return address{}, []error{&agents.KeyError{Key: "address", Msg: msg, Cure: cure}}
	}
	const cure = `write it like "https://10.9.0.12" or "10.9.0.12:443"`
	if s == "" {
		return bad("is missing", cure)
	}
	if !strings.Contains(s, "://") {
		if ip, err := netip.ParseAddr(s); err == nil && ip.Is6() {
			s = "[" + s + "]"
		}
		s = "https://" + s
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Opaque != "" || u.Hostname() == "":
		return bad("is not a URL or host[:port]", cure)
	case u.User != nil:
		return bad("holds credentials", "set username and password_file instead")
	case u.RawQuery != "" || u.Fragment != "" || (u.Path != "" && u.Path != "/"):
		return bad("holds more than scheme, host and port", cure)
	case u.Scheme == "http" && !insecure:
		return bad("http sends the password in clear", "use https, or set insecure = true for this device")
	case u.Scheme != "https" && u.Scheme != "http":
		return bad("has a scheme other than https", cure)
	}
	if p := u.Port(); p != "" {
		if n, err := strconv.Atoi(p); err != nil || n < 1 || n > 65535 {
			return bad("has a wrong port", cure)
		}
	}
	return address{scheme: u.Scheme, host: strings.TrimSuffix(u.Host, ":")}, nil
}

// reference turns a link or an action target of a document into a path at this BMC. It
// refuses what leads elsewhere: the credentials would go with it.
func (a address) reference(ref string) (string, error) {
	u, err := url.Parse(ref)
	if err != nil || u.Opaque != "" || u.User != nil || hasControl(ref) {
		return "", errors.New("a link that is not a URI")
	}
	if u.IsAbs() || u.Host != "" {
		if u.Scheme != a.scheme || !sameHost(a.scheme, u.Host, a.host) {
			return "", fmt.Errorf("%w: a link leads to another host, %s", ErrNotRedfish, word(u.Host))
		}
	}
	if !strings.HasPrefix(u.Path, "/") {
		return "", errors.New("a link that is no absolute path")
	}
	clean := (&url.URL{Scheme: a.scheme, Host: a.host, Path: "/"}).ResolveReference(&url.URL{Path: u.Path, RawPath: u.RawPath, RawQuery: u.RawQuery})
	return clean.RequestURI(), nil
}

// samePath reports whether a link of a document leads to the path uri. A slash at the end makes no
// difference, nor do capital letters, which some BMCs take for small ones.
func (a address) samePath(link, uri string) bool {
	plain := func(uri string) string {
		path, _, _ := strings.Cut(uri, "?")
		return strings.TrimSuffix(path, "/")
	}
	link, err := a.reference(link)
	return err == nil && strings.EqualFold(plain(link), plain(uri))
}

// checkRedirect follows a read to another path of the same BMC (/redfish/v1 to /redfish/v1/).
// It follows no command, and nothing to elsewhere: net/http would carry X-Auth-Token along.
func (a address) checkRedirect(req *http.Request, via []*http.Request) error {
	switch {
	case req.URL.Scheme != a.scheme || !sameHost(a.scheme, req.URL.Host, a.host):
		return fmt.Errorf("%w: redirected to another host, %s", ErrNotRedfish, word(req.URL.Host))
	case via[0].Method != http.MethodGet:
		return fmt.Errorf("%w: a command was redirected", ErrNotRedfish)
	case len(via) > 3:
		return fmt.Errorf("%w: redirected in circles", ErrNotRedfish)
	}
	return nil
}

func sameHost(scheme, x, y string) bool {
	return strings.EqualFold(withPort(scheme, x), withPort(scheme, y))
}

func withPort(scheme, host string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	port := "443"
	if scheme == "http" {
		port = "80"
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), port)
}
