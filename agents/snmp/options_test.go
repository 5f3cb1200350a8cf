package snmp

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/hamgr/hamgr/agents"
	"github.com/hamgr/hamgr/agents/snmp/snmppeer"
)

func TestValidate(t *testing.T) {
	secret := agents.NewSecret
	for name, c := range map[string]struct {
		change func(o *Options)
		key    string // the wrong one; none if empty
	}{
		"right":                     {func(*Options) {}, ""},
		"without encryption":        {func(o *Options) { o.Priv, o.PrivPassword = "none", agents.Secret{} }, ""},
		"the weak ones":             {func(o *Options) { o.Auth, o.Priv = "MD5", "DES" }, ""},
		"odd bytes":                 {func(o *Options) { o.AuthPassword, o.PrivPassword = secret(odd), secret(odd) }, ""},
		"a profile":                 {func(o *Options) { o.Profile, o.SysObjectID = "apc-ms", ".1.3.6.1.4.1.318.1.3.4.6" }, ""},
		"no address":                {func(o *Options) { o.Address = "" }, "address"},
		"a URL":                     {func(o *Options) { o.Address = "udp://10.9.0.50" }, "address"},
		"port 0":                    {func(o *Options) { o.Address = "10.9.0.50:0" }, "address"},
		"version 2":                 {func(o *Options) { o.Version = "2" }, "version"},
		"no user":                   {func(o *Options) { o.Username = "" }, "username"},
		"a long user":               {func(o *Options) { o.Username = strings.Repeat("u", 33) }, "username"},
		"no authentication":         {func(o *Options) { o.Auth = "" }, "auth"},
		"auth none":                 {func(o *Options) { o.Auth = "none" }, "auth"},
		"no password":               {func(o *Options) { o.AuthPassword = agents.Secret{} }, "auth_password"},
		"a short password":          {func(o *Options) { o.AuthPassword = secret("1234567") }, "auth_password"},
		"a line end":                {func(o *Options) { o.PrivPassword = secret("12345678\n") }, "priv_password"},
		"no encryption named":       {func(o *Options) { o.Priv = "" }, "priv"},
		"unknown encryption":        {func(o *Options) { o.Priv = "AES128" }, "priv"},
		"no privacy password":       {func(o *Options) { o.PrivPassword = agents.Secret{} }, "priv_password"},
		"a needless one":            {func(o *Options) { o.Priv = "none" }, "priv_password"},
		"community in 3":            {func(o *Options) { o.Community = secret("x") }, "community"},
		"write community in 3":      {func(o *Options) { o.WriteCommunity = secret("x") }, "write_community"},
		"an unknown profile":        {func(o *Options) { o.Profile = "apc" }, "profile"},
		"sysObjectID in words":      {func(o *Options) { o.SysObjectID = "SNMPv2-SMI::enterprises.318" }, "sys_object_id"},
		"2c":                        {func(o *Options) { *o = *with2c("pdu-a", "public") }, ""},
		"2c without community":      {func(o *Options) { *o = *with2c("pdu-a", "") }, "community"},
		"a long community":          {func(o *Options) { *o = *with2c("pdu-a", strings.Repeat("c", 128)) }, "community"},
		"a user in 2c":              {func(o *Options) { *o = *with2c("pdu-a", "c"); o.Username = "u" }, "username"},
		"a password in 1":           {func(o *Options) { *o = *with2c("pdu-a", "c"); o.Version, o.PrivPassword = "1", secret("12345678") }, "priv_password"},
		"line end in the community": {func(o *Options) { *o = *with2c("pdu-a", "c\n") }, "community"},
	} {
		o := with3("10.9.0.50", snmppeer.Fencer)
		c.change(o)
		err := o.Validate()
		var key *agents.KeyError
		if errors.As(err, &key); c.key == "" && err != nil || c.key != "" && (key == nil || key.Key != c.key) {
			t.Errorf("%s: %v, want %q", name, err, c.key)
		}
		if a, err2 := o.Open(nil); (err == nil) != (err2 == nil) {
			t.Errorf("%s: valid %v, opened %v, %v", name, err, a, err2)
		}
		for _, text := range []string{fmt.Sprint(err), fmt.Sprintf("%+v", o)} {
			if strings.Contains(text, snmppeer.Fencer.AuthPassword) || strings.Contains(text, odd) {
				t.Errorf("%s: a secret in %q", name, text)
			}
		}
	}
}

func TestAddress(t *testing.T) {
	for s, want := range map[string]string{
		"10.9.0.50": "10.9.0.50 161", "10.9.0.50:1161": "10.9.0.50 1161", "pdu-a.example": "pdu-a.example 161",
		"pdu-a:1161": "pdu-a 1161", "::1": "::1 161", "[::1]": "::1 161", "[2001:db8::1]:1161": "2001:db8::1 1161",
	} {
		host, port, err := splitAddress(s)
		if got := fmt.Sprintf("%s %d", host, port); err != nil || got != want {
			t.Errorf("%q is %s, %v", s, got, err)
		}
	}
}
