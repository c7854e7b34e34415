//! The varlink protocol (varlink.org): what is asked, what is answered. No sockets here.

use serde_json::{json, Value as Json};

/// Ends each message.
pub const END: u8 = 0;
/// Our interface.
pub const INTERFACE: &str = "mega.Daemon";
/// What it is, for who asks.
pub const DESCRIPTION: &str = include_str!("mega.Daemon.varlink");
/// The interface that every service has.
const SERVICE: &str = "org.varlink.service";
const SERVICE_DESCRIPTION: &str = "\
# What every varlink service answers.
interface org.varlink.service

method GetInfo() -> (vendor: string, product: string, version: string, url: string, interfaces: []string)

method GetInterfaceDescription(interface: string) -> (description: string)

error InterfaceNotFound (interface: string)
error MethodNotFound (method: string)
error MethodNotImplemented (method: string)
error InvalidParameter (parameter: string)
error PermissionDenied ()
";

/// What whoever asks may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum May {
    /// Nothing.
    Nothing,
    /// Read.
    Read,
    /// Read and change.
    Change,
}

/// What the daemon itself is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Say what it does.
    Status,
    /// Read the configuration again.
    Reload,
}

/// Answers one message; nothing: no answer is wanted. An error: it is no call, and the connection is of no use any more.
pub fn answer(message: &[u8], may: May, carry_out: &mut dyn FnMut(Order) -> Json) -> Result<Option<Json>, ()> {
    let call: Json = serde_json::from_slice(message).map_err(drop)?;
    let method = call["method"].as_str().ok_or(())?;
    let parameters = match &call["parameters"] {
        Json::Null => json!({}),
        object @ Json::Object(_) => object.clone(),
        _ => return Err(()),
    };
    let reply = reply(method, &parameters, may, carry_out);
    Ok((call["oneway"] != true).then_some(reply))
}

fn reply(method: &str, parameters: &Json, may: May, carry_out: &mut dyn FnMut(Order) -> Json) -> Json {
    if may < May::Read {
        return error("PermissionDenied", json!({}));
    }
    let no_parameters = || match parameters.as_object().and_then(|of| of.keys().next()) {
        Some(key) => Err(error("InvalidParameter", json!({"parameter": key}))),
        None => Ok(()),
    };
    let done = match method {
        "mega.Daemon.Status" => no_parameters().map(|()| json!({"status": carry_out(Order::Status)})),
        "mega.Daemon.Reload" if may < May::Change => Err(error("PermissionDenied", json!({}))),
        "mega.Daemon.Reload" => no_parameters().map(|()| carry_out(Order::Reload)),
        "org.varlink.service.GetInfo" => no_parameters().map(|()| {
            json!({
                "vendor": "The MEGA authors", "product": "mega", "version": env!("CARGO_PKG_VERSION"), "url": "",
                "interfaces": [SERVICE, INTERFACE],
            })
        }),
        "org.varlink.service.GetInterfaceDescription" => match parameters["interface"].as_str() {
            Some(SERVICE) => Ok(json!({"description": SERVICE_DESCRIPTION})),
            Some(INTERFACE) => Ok(json!({"description": DESCRIPTION})),
            Some(other) => Err(error("InterfaceNotFound", json!({"interface": other}))),
            None => Err(error("InvalidParameter", json!({"parameter": "interface"}))),
        },
        _ => Err(match method.rsplit_once('.') {
            Some((SERVICE | INTERFACE, _)) => error("MethodNotFound", json!({"method": method})),
            Some((interface, _)) => error("InterfaceNotFound", json!({"interface": interface})),
            None => error("InvalidParameter", json!({"parameter": "method"})),
        }),
    };
    match done {
        Ok(parameters) => json!({"parameters": parameters}),
        Err(error) => error,
    }
}

/// What is answered to who may do nothing, unasked.
pub fn refusal() -> Vec<u8> {
    let mut text = error("PermissionDenied", json!({})).to_string().into_bytes();
    text.push(END);
    text
}

fn error(name: &str, parameters: Json) -> Json {
    json!({"error": format!("{SERVICE}.{name}"), "parameters": parameters})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(text: &str, may: May) -> (Result<Option<Json>, ()>, Vec<Order>) {
        let mut orders = Vec::new();
        let answer = answer(text.as_bytes(), may, &mut |order| {
            orders.push(order);
            json!({"done": true})
        });
        (answer, orders)
    }

    fn error_of(text: &str, may: May) -> String {
        let (answer, orders) = ask(text, may);
        assert_eq!(orders, [], "{text}");
        answer.unwrap().unwrap()["error"].as_str().unwrap().to_owned()
    }

    #[test]
    fn readers_get_the_status_and_only_who_may_change_reloads() {
        let (status, reload) = (
            r#"{"method":"mega.Daemon.Status"}"#,
            r#"{"method":"mega.Daemon.Reload","parameters":{}}"#,
        );
        for may in [May::Read, May::Change] {
            let (answer, orders) = ask(status, may);
            assert_eq!(answer, Ok(Some(json!({"parameters": {"status": {"done": true}}}))));
            assert_eq!(orders, [Order::Status]);
        }
        let (answer, orders) = ask(reload, May::Change);
        assert_eq!(
            (answer, orders),
            (Ok(Some(json!({"parameters": {"done": true}}))), vec![Order::Reload])
        );
        assert_eq!(error_of(reload, May::Read), "org.varlink.service.PermissionDenied");
        for text in [status, reload, r#"{"method":"org.varlink.service.GetInfo"}"#] {
            assert_eq!(error_of(text, May::Nothing), "org.varlink.service.PermissionDenied");
        }
    }

    #[test]
    fn it_describes_itself_and_each_method_that_it_describes_is_answered() {
        let (info, _) = ask(r#"{"method":"org.varlink.service.GetInfo"}"#, May::Read);
        assert_eq!(
            info.unwrap().unwrap()["parameters"]["interfaces"],
            json!([SERVICE, INTERFACE])
        );
        for interface in [SERVICE, INTERFACE] {
            let call = json!({"method": "org.varlink.service.GetInterfaceDescription", "parameters": {"interface": interface}});
            let (answer, _) = ask(&call.to_string(), May::Read);
            let text = answer.unwrap().unwrap()["parameters"]["description"]
                .as_str()
                .unwrap()
                .to_owned();
            let methods: Vec<&str> = text
                .lines()
                .filter_map(|line| line.strip_prefix("method ")?.split('(').next())
                .collect();
            assert!(
                text.contains(&format!("\ninterface {interface}\n")) && !methods.is_empty(),
                "{text}"
            );
            for method in methods {
                let call = json!({"method": format!("{interface}.{method}")}).to_string();
                let (answer, _) = ask(&call, May::Change);
                let error = answer.unwrap().unwrap()["error"].clone();
                assert!(
                    error.is_null() || error == "org.varlink.service.InvalidParameter",
                    "{method}: {error}"
                );
            }
        }
    }

    #[test]
    fn what_is_not_there_is_named() {
        for (text, name) in [
            (r#"{"method":"mega.Daemon.Frobnicate"}"#, "MethodNotFound"),
            (r#"{"method":"org.example.Ping"}"#, "InterfaceNotFound"),
            (r#"{"method":"Status"}"#, "InvalidParameter"),
            (
                r#"{"method":"mega.Daemon.Status","parameters":{"x":1}}"#,
                "InvalidParameter",
            ),
            (
                r#"{"method":"org.varlink.service.GetInterfaceDescription"}"#,
                "InvalidParameter",
            ),
        ] {
            assert_eq!(
                error_of(text, May::Change),
                format!("org.varlink.service.{name}"),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_call_is_refused_and_who_wants_no_answer_gets_none() {
        for bad in [
            "",
            "{",
            "[]",
            "1",
            "null",
            "{}",
            r#"{"method":1}"#,
            r#"{"method":"a.b","parameters":3}"#,
        ] {
            assert_eq!(ask(bad, May::Change), (Err(()), vec![]), "{bad}");
        }
        let (answer, orders) = ask(r#"{"method":"mega.Daemon.Reload","oneway":true}"#, May::Change);
        assert_eq!((answer, orders), (Ok(None), vec![Order::Reload]));
    }
}
